"""Raw states that AutoGen 0.4.9 to 0.7.5 wrote, imported and continued by the AutoGen that is installed."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import autogen_agentchat
import pytest
from autogen_kinds import AFTER, FACT, KINDS, QUESTION, Cast
from gap_teams import refusing

import midturn
from midturn.autogen.state import older_versions

HERE = Path(__file__).parent
FILES = sorted((HERE / "autogen").glob("*/*.json"))
NAMES = [f"{file.parent.name}-{file.stem}" for file in FILES]

NOT_SHOWN = {"magentic_one"}
"""It begins each task with a new ledger and forgets the one before; the fact stays in its state alone."""


TEAMS = [(file.parent.name, file.stem) for file in FILES if file.stem not in ("assistant", "structured")]
"""The states of agents have not changed since 0.4.9, those of all teams have."""
VERSIONS = [version for version, kind in TEAMS if kind == "round_robin"]
OLD = [
    (version, kind) for version, kind in TEAMS if not version.startswith("0.7.") and kind in ("round_robin", "graph")
]


@pytest.fixture
async def store():
    async with midturn.open("memory://") as store:
        yield store


def golden(version, kind):
    return json.loads((HERE / "autogen" / version / f"{kind}.json").read_text(encoding="ascii"))


def messages_of(state):
    """The messages in all threads and buffers of a team's state."""
    agents = state["agent_states"].values()
    return [
        message for agent in agents for name in ("message_thread", "message_buffer") for message in agent.get(name, ())
    ]


async def gone_on(store, kind, state):
    """Import a state as ``midturn import`` does, and run a turn; what the models were asked in it."""
    cast = Cast(AFTER.get(kind, {}))
    await store.session("case").save({"state": state}, origin="import")
    await store.session("case", lambda: KINDS[kind](cast)).run(task=QUESTION)
    return cast.asked


async def refused(store, kind, state):
    """Return the error for a rejected state, after a check that the state is still there."""
    with pytest.raises(midturn.StateInvalid) as caught:
        await gone_on(store, kind, state)
    assert await store.session("case").at(1).state() == state
    return caught.value


def test_every_kind_is_there():
    assert {file.stem for file in FILES} == set(KINDS)
    assert [name for name in NAMES if name.startswith("0.7.")] == [
        f"0.7.{n}-{kind}" for n in (4, 5) for kind in sorted(KINDS)
    ]


def test_the_files_are_what_the_installed_version_writes(tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "make_autogen.py", tmp_path], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    for kind in KINDS:
        assert json.loads((tmp_path / f"{kind}.json").read_text()) == golden(autogen_agentchat.__version__, kind), kind


@pytest.mark.parametrize("file", FILES, ids=NAMES)
async def test_a_state_is_gone_on_with(store, file):
    kind, state = file.stem, golden(file.parent.name, file.stem)
    asked = await gone_on(store, kind, state)
    assert any(QUESTION in str(request) for request in asked)
    assert any(FACT in str(request) for request in asked) is (kind not in NOT_SHOWN)
    for request in asked:
        refusing()(request)
    case = store.session("case", lambda: KINDS[kind](Cast(AFTER.get(kind, {}))))
    assert await case.at(1).state() == state
    await case.run(task="Sum it up.")  # and what that turn has left needs no upgrade


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_was_said_stays_as_it_was(store, version):
    state = golden(version, "round_robin")
    await gone_on(store, "round_robin", state)
    now = (await store.session("case").at(2).state())["agent_states"]["RoundRobinGroupChatManager"]["message_thread"]
    before = state["agent_states"]["RoundRobinGroupChatManager"]["message_thread"]
    assert len(before) == 5
    for old, new in zip(before, now, strict=False):
        assert new.keys() == {*old, "id", "created_at"} | ({"tool_calls", "results"} & new.keys())
        assert {key: new[key] for key in old} | {"created_at": ""} == old | {"created_at": ""}


@pytest.mark.parametrize(("version", "kind"), OLD)
async def test_without_the_upgrade_an_old_state_is_refused(store, monkeypatch, version, kind):
    monkeypatch.setattr(older_versions, "modernize", lambda state, *_: state)
    await refused(store, kind, golden(version, kind))


@pytest.mark.parametrize("kind", ["assistant", "round_robin"])
async def test_a_newer_state_is_refused(store, kind):
    state = golden("0.4.9", kind) | {"version": "99"}
    assert "is '99', but the installed AutoGen writes '1.0.0'" in str(await refused(store, kind, state))


@pytest.mark.parametrize(("version", "key"), [("0.7.5", "id"), ("0.7.5", "created_at"), ("0.6.1", "created_at")])
async def test_what_only_one_message_lacks_is_not_old_but_damaged(store, version, key):
    state = golden(version, "round_robin")
    del messages_of(state)[1][key]
    assert key in str(await refused(store, "round_robin", state))


async def test_a_time_of_another_form_is_refused(store):
    state = golden("0.7.5", "round_robin")
    messages_of(state)[0]["created_at"] = "2025-01-01 00:00:00.005000+00:00"
    assert "created_at: changes when it is loaded" in str(await refused(store, "round_robin", state))


async def test_an_old_form_is_refused_in_what_midturn_wrote(store):
    case = store.session("case", lambda: KINDS["round_robin"](Cast({})))
    await case.run(task=FACT)
    tree = {"state": await case.at(1).state(), "beside": {}, "kept": 0}
    for message in messages_of(tree["state"]):
        del message["id"]
    await store.session("other").save(tree, origin="save")
    with pytest.raises(midturn.Drifted, match="id: changes when it is loaded"):
        await store.session("other", lambda: KINDS["round_robin"](Cast({}))).run(task=QUESTION)


@pytest.mark.parametrize("version", ["0.6.1", "0.6.4"])
async def test_times_may_have_been_written_otherwise(store, version):
    state = golden(version, "round_robin")
    for message in messages_of(state):
        message["created_at"] = datetime.fromisoformat(message["created_at"]).isoformat()
    assert await gone_on(store, "round_robin", state)


async def test_a_message_has_the_same_id_whenever_and_wherever_it_is_read(store):
    state = golden("0.4.9", "swarm")
    await gone_on(store, "swarm", state)
    first = messages_of(await store.session("case").at(2).state())
    await store.session("other").save({"state": state}, origin="import")
    await store.session("other", lambda: KINDS["swarm"](Cast({}))).run(task=QUESTION)
    second = messages_of(await store.session("other").at(2).state())
    ids = [
        [message["id"] for message in found if message["created_at"].startswith("1970")] for found in (first, second)
    ]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 10
    assert len(set(ids[0])) == 7


def test_what_is_said_twice_has_two_ids():
    said = {"source": "ann", "content": "Yes.", "type": "TextMessage"}
    state = {"thread": [said, said], "buffer": [said]}
    found = older_versions.modernize(state, [("thread",), ("buffer",)], {})
    assert len({message["id"] for message in found["thread"]}) == 2
    assert found["buffer"][0] == found["thread"][0]
    assert "id" not in said


@pytest.mark.parametrize("version", ["0.5.7", "0.6.1", "0.6.2"])
async def test_a_graph_that_had_not_come_to_its_end_is_refused(store, version):
    state = golden(version, "graph")
    assert state["agent_states"]["GraphManager"]["message_thread"].pop()["source"] == "DiGraphStopAgent"
    error = await refused(store, "graph", state)
    assert error.path == "$.state.agent_states.GraphManager"
    assert "did not run to its end" in str(error)


async def test_what_another_team_had_is_not_taken_for_old(store):
    state = golden("0.6.1", "graph")
    assert "DiGraphStopAgent" in str(await refused(store, "round_robin", state))


@pytest.mark.parametrize(
    "broken", ["text", None, 3, {"agent_states": 1}, {"agent_states": {"RoundRobinGroupChatManager": []}}]
)
async def test_what_is_no_state_is_refused_as_before(store, broken):
    await refused(store, "round_robin", broken if isinstance(broken, dict) else {"agent_states": broken})
