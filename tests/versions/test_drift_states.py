"""Objects of a user's own that have more than a checkpoint kept of them: new in them, or lost from the state."""

import logging

import pytest
from autogen_agentchat.agents import AssistantAgent
from scripted import Scripted

import midturn
from midturn.errors import Drifted

TOTAL = "$.beside.tools/add/func.total is in the object that was built, and not in the state"
NOTE = "$.beside.tools/add/func.orders[0].note is in the object that was built, and not in the state"


class Cart:
    def __init__(self):
        self.orders = [{"item": "tea"}, {"item": "cups"}]

    async def add(self, item: str) -> str:
        """Order something."""
        self.orders.append({"item": item})
        return item

    async def save_state(self):
        return {"orders": self.orders}

    async def load_state(self, state):
        self.orders = state.get("orders", [])


class Totalling(Cart):
    async def save_state(self):
        return {"orders": self.orders, "total": len(self.orders)}


class Noting(Cart):
    async def save_state(self):
        return {"orders": [{"note": "", **order} for order in self.orders]}


def agent(cart):
    return AssistantAgent("shop", Scripted(), tools=[cart.add])


def early():
    return agent(Cart())


def late():
    return agent(Totalling())


def noting():
    return agent(Noting())


def told(caplog):
    return [record.getMessage() for record in caplog.records if record.name.startswith("midturn.")]


@pytest.mark.parametrize(("later", "text"), [(late, TOTAL), (noting, NOTE)])
async def test_what_a_new_version_adds_is_told_once_and_kept_in_the_history(memory, caplog, later, text):
    await memory.session("case", early).run(task="one")
    for task in ("two", "three"):
        await memory.session("case", later).run(task=task)
    (warning,) = told(caplog)
    assert "'case'" in warning
    assert text in warning
    assert [list(turn.drift) async for turn in memory.session("case").history()] == [[], [text], []]


async def test_what_got_lost_from_a_state_is_told(memory, caplog):
    await memory.save("case", early())
    tree = {"state": await memory.session("case").at(1).state(), "beside": {"tools/add/func": {}}, "kept": 1}
    await memory.session("case").save(tree, origin="import")
    assert await memory.load("case", early()) == 2
    (warning,) = told(caplog)
    assert "$.beside.tools/add/func.orders is in the object that was built" in warning


async def test_a_policy_may_refuse_it_and_nothing_is_written(memory):
    await memory.session("case", early).run(task="one")
    before = (await memory.store.head("case")).seq
    with pytest.raises(Drifted) as caught:
        await memory.session("case", late, on_drift="raise").run(task="two")
    assert caught.value.session == "case"
    assert caught.value.path == "$.beside.tools/add/func.total"
    assert caught.value.drift.texts == [TOTAL]
    assert ".migration(1, 2)" in "".join(caught.value.__notes__)
    assert (await memory.store.head("case")).seq == before


async def test_a_function_is_asked_and_a_live_agent_is_as_it_was_when_it_refuses(memory):
    await memory.save("case", early())
    cart, asked = Totalling(), []
    cart.orders = []

    def refuse(drift):
        asked.extend((change.what, change.text) for change in drift.changes)
        raise RuntimeError("not now")

    with pytest.raises(RuntimeError, match="not now"):
        await memory.session("case", agent(cart), on_drift=refuse).load()
    assert asked == [("state", TOTAL)]
    assert cart.orders == []


async def test_a_migration_says_that_it_is_meant(memory, caplog):
    await memory.session("case", midturn.Blueprint("shop", early)).run(task="one")
    shop = midturn.Blueprint("shop", late, version=2)
    shop.migration(1, 2)(lambda state: state)
    await memory.session("case", shop, on_drift="raise").run(task="two")
    assert told(caplog) == []
    turns = [turn async for turn in memory.session("case").history()]
    assert list(turns[1].drift) == ["migrated from version 1 to 2", TOTAL]


async def test_nothing_is_told_of_what_comes_back_as_it_was(memory, caplog):
    with caplog.at_level(logging.INFO, "midturn"):
        for task in ("one", "two"):
            await memory.session("case", late, on_drift="raise").run(task=task)
    assert told(caplog) == []
