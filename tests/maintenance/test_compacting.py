"""Compacting: what is before a turn goes, and nobody who only looks at what is kept sees a difference."""

import asyncio
import os
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from cast import Gate, agents, numbers, said
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tools.servers.shared import STORES, store_url

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.errors import Conflict, InvalidArgument, NotFound, SessionBusy, SessionDeleted, StateInvalid
from midturn.maintenance import compacting, copying
from midturn.record.head import Kind, Removal
from midturn.record.rows import progress_of
from midturn.sessions.session import Session
from midturn.stores.registry import open_store
from midturn.stores.wrapper import StoreWrapper, wrap
from midturn.testing import a_write

LONG = "a text that is long enough to be stored as a body of its own"


@pytest.fixture(params=STORES)
async def pair(request, tmp_path):
    """A store, and another of the same kind for a twin that is not compacted."""
    urls = [store_url(request.param, tmp_path / name) for name in ("store", "twin")]
    async with midturn.open(urls[0]) as store, midturn.open(urls[1]) as twin:
        yield store, twin


@pytest.fixture
async def both():
    async with midturn.open("memory://") as store, midturn.open("memory://") as twin:
        yield store, twin


async def fill(store, turns=6, session="case", **options):
    """A session with keys, calls, a failed turn, and texts that come back."""
    answers = [ValueError("broken"), *(f"{LONG}, said {n}" for n in range(turns))]
    factory, _ = agents(*answers)
    case = store.session(session, factory, labels={"team": "claims"}, **options)
    with pytest.raises(midturn.TurnFailed):
        await case.run(task=f"{LONG}: the first try", key="broken")
    for number in range(turns):
        await case.run(task=f"{LONG}, asked {number}", key=f"k{number}")
    return case


async def copied(store, twin, session="case"):
    return await copying.copy(store.store, twin.store, session, on_write=lambda _: None)


async def kept(case, first, stop=99):
    """All that can be read from a turn on; ``stop`` leaves out the turns that ran twice, at different times."""
    turns = [turn async for turn in case.history() if first <= turn.number < stop]
    done = [turn.number for turn in turns if turn.status == "done"]
    return (
        [replace(turn, decisions=()) for turn in turns],
        [replace(await case.turn(turn.number), decisions=()) for turn in turns],
        [(await case.at(number).tree(), await case.at(number).fingerprint()) for number in done],
    )


async def rows(store, session="case"):
    return [row for kind in Kind for row in await store.store.rows(session, kind)]


async def test_what_is_kept_reads_and_continues_as_before(pair):
    store, twin = pair
    case = await fill(store)
    await copied(store, twin)
    other = twin.session("case", agents()[0])
    before = await rows(store)
    done = await case.compact(before=5, by="ann")
    assert (done.first, done.turns) == (5, 4)
    assert done.bodies > 0
    assert len(await rows(store)) < len(before)
    assert await kept(case, 1) == await kept(other, 5)
    assert await numbers(case) == [(n, "done") for n in (5, 6, 7)]
    assert [turn.number async for turn in case.history(last=9)] == [5, 6, 7]
    assert (await store.info("case")).first_turn == 5
    for number in range(1, 5):
        for look in (case.turn(number), case.at(number).tree(), case.replay(number)):
            with pytest.raises(NotFound, match="any more; what is before turn 5 was removed"):
                await look
        with pytest.raises(NotFound):
            await case.fork(f"fork-{number}", at=number)
    assert (await case.replay(6)).same
    for key in ("k4", "k5"):
        task = f"{LONG}, asked {key[1]}"
        assert said(await case.run(task=task, key=key)) == said(await other.run(task=task, key=key))
    for key, task in (("k0", f"{LONG}, asked 0"), ("broken", f"{LONG}: the first try")):
        with pytest.raises(NotFound, match="had this key, and a compaction has removed the turn; it does not run ag"):
            await case.run(task=task, key=key)
    # What was removed is said again, so it has to be stored again.
    for task in (f"{LONG}, asked 0", f"{LONG}: the first try", "more"):
        ours, theirs = agents(f"{LONG}, said 0", task), agents(f"{LONG}, said 0", task)
        results = [
            await one.session("case", factory).run(task=task) for one, (factory, _) in ((store, ours), (twin, theirs))
        ]
        assert said(results[0]) == said(results[1])
        assert str(ours[1].seen) == str(theirs[1].seen)
    assert await kept(case, 5, 8) == await kept(other, 5, 8)
    [decision] = (await case.turn(7)).decisions
    assert (decision.kind, decision.by, decision.answer) == ("compact", "ann", "compact")


async def test_compacting_again_removes_the_next_turns_and_then_nothing(pair):
    store, twin = pair
    case = await fill(store)
    await copied(store, twin)
    for before in (3, 5, 7):
        done = await case.compact(before=before)
        assert (done.first, done.turns) == (before, 2)
        assert await kept(case, 1) == await kept(twin.session("case"), before)
        for again in range(1, before + 1):
            head = await store.store.head("case")
            assert await case.compact(before=again) == compacting.Compacted(first=before, turns=0, bodies=0)
            assert (await store.store.head("case")).seq == head.seq
    await case.run(task="on it goes")
    assert (await case.compact(before=8)).turns == 1


async def test_the_texts_of_what_was_removed_are_gone_and_so_is_their_space(pair):
    store, _ = pair
    case = await fill(store)
    await case.reset()
    await store.session("case", agents()[0]).run(task="after the reset")
    size = sum(len(row.data) for row in await rows(store))
    await store.session("case").compact(before=8)
    left = b"".join(row.data for row in await rows(store))
    assert LONG.encode() not in left
    assert b"broken" not in left.replace(b'"key":"broken"', b"")
    assert b"after the reset" in left
    assert len(left) < size / 2


@pytest.mark.parametrize("before", [0, -1, True, 1.5, "2", None])
async def test_a_number_that_is_none_is_refused(memory, before):
    case = await fill(memory, turns=1)
    with pytest.raises(InvalidArgument, match="before: is"):
        await case.compact(before=before)


async def test_the_latest_state_always_stays(memory):
    with pytest.raises(NotFound):
        await memory.session("nobody").compact(before=1)
    case = await fill(memory, turns=2)
    with pytest.raises(NotFound, match="no checkpoint 4; the latest is 3"):
        await case.compact(before=4)
    assert len(await numbers(case)) == 3
    assert (await case.compact(before=3)).turns == 2
    await memory.delete("case")
    with pytest.raises(SessionDeleted):
        await case.compact(before=3)


async def test_an_open_turn_is_finished_after_a_compaction(memory):
    @midturn.tool(approval=True)
    async def refund(order: str) -> str:
        """Refund an order."""
        return f"refunded {order}"

    from autogen_agentchat.agents import AssistantAgent
    from scripted import Scripted, calls

    def answer(messages):
        asked = messages[-1].type == "UserMessage" and "refund" in str(messages[-1].content)
        return calls(("refund", '{"order": "A1"}')) if asked else f"{LONG} {len(messages)}"

    def build():
        return AssistantAgent("desk", Scripted(answer), tools=[refund], max_tool_iterations=3)

    case = memory.session("case", build)
    for number in range(4):
        await case.run(task=f"{LONG} {number}")
    assert (await case.run(task="refund A1")).waiting
    assert (await case.compact(before=4)).turns == 3
    assert (await memory.info("case")).status == "waiting"
    again = memory.session("case", build)
    result = await again.answer("approve")
    assert "refunded A1" in str(result.messages)
    assert await numbers(again) == [(4, "done"), (5, "done")]


async def test_a_call_that_a_key_remembers_is_not_repeated_after_a_compaction(memory):
    """The turn was given up, and its own records of calls are gone: only the key refers to the long result."""
    from autogen_agentchat.agents import AssistantAgent
    from scripted import Scripted, calls

    done, broken = [], [ValueError("broken")]

    async def look_up(order: str) -> str:
        """Look an order up."""
        done.append(order)
        return f"{LONG}: {order}"

    def answer(messages):
        if messages[-1].type != "UserMessage":
            if broken:
                raise broken.pop()
            return str(messages[-1].content)
        return calls(("look_up", '{"order": "A1"}')) if "look" in str(messages[-1].content) else "no"

    def build():
        return AssistantAgent("desk", Scripted(answer), tools=[look_up], max_tool_iterations=3)

    case = memory.session("case", build, journals=1)
    await case.run(task="first")
    with pytest.raises(midturn.TurnFailed):
        await case.run(task="look A1 up", key="k")
    for number in range(3):
        await case.run(task=f"then {number}")
    assert await memory.store.rows("case", Kind.CALL, stop=2) == []
    assert (await case.compact(before=2)).turns == 1
    assert f"{LONG}: A1" in said(await memory.session("case", build).run(task="look A1 up", key="k"))
    assert done == ["A1"]


# Workers beside it


@pytest.mark.fault("F34")
async def test_a_worker_with_a_live_agent_notices_a_compaction(pair):
    """Its memory of what is stored is older than the removal."""
    store, twin = pair
    case = await fill(store)
    live = store.session("case", agents(*[f"{LONG}, said 0"] * 3)[0])
    await live.run(task="now it is live")
    await case.compact(before=7)
    await live.reset()
    await store.session("case").compact(before=9)
    for _ in range(2):
        await live.run(task=f"{LONG}, asked 0")
    await copied(store, twin)
    assert await kept(twin.session("case"), 1) == await kept(store.session("case"), 9)


@pytest.mark.fault("F34")
async def test_a_worker_whose_last_turn_was_removed_has_lost_no_history(pair):
    store, _ = pair
    await fill(store)
    live = store.session("case", agents()[0])
    await live.run(task="its last turn")
    last = (await store.info("case")).turns
    for _ in range(2):
        await store.session("case", agents()[0]).run(task="of another worker")
    for before in (last + 1, last + 2):  # the row of its turn is replaced, and then gone
        await store.session("case").compact(before=before)
        await live.run(task="and it continues")


@pytest.mark.fault("F34")
async def test_a_session_that_a_worker_holds_is_not_compacted(memory):
    await fill(memory)
    gate = Gate()
    running = asyncio.create_task(memory.session("case", agents(gate)[0]).run(task="slow"))
    await gate.reached.wait()
    before = await rows(memory)
    with pytest.raises(SessionBusy):
        await memory.session("case", busy="raise").compact(before=5)
    assert await rows(memory) == before
    waiting = asyncio.create_task(memory.session("case").compact(before=5))
    await asyncio.sleep(0)
    gate.open()
    await running
    assert (await waiting).turns == 4


@pytest.mark.fault("F34")
async def test_workers_beside_compactions_lose_nothing(pair):
    store, _ = pair
    case = await fill(store)

    async def work(number):
        factory, _ = agents(*[f"{LONG}, said {n % 3}" for n in range(9)])
        for task in range(3):
            await store.session("case", factory).run(task=f"{LONG}, asked {number} {task}")

    async def compact():
        for before in (3, 5, 7):
            with suppress(Conflict):
                await store.session("case").compact(before=before)
            await asyncio.sleep(0)

    await asyncio.gather(work(1), work(2), compact())
    await case.compact(before=7)
    assert await numbers(store.session("case")) == [(n, "done") for n in range(7, 14)]
    await kept(store.session("case"), 7)


class Interrupting(StoreWrapper):
    """A store in which somebody does something before the call with a number."""

    left = act = None

    async def head(self, session):
        await self._count()
        return await super().head(session)

    async def rows(self, session, kind, *, start=0, stop=None):
        await self._count()
        return await super().rows(session, kind, start=start, stop=stop)

    async def write(self, write):
        await self._count()
        return await super().write(write)

    async def _count(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                await self.act()


@pytest.fixture(params=STORES if os.environ.get("MIDTURN_LONG") else ("memory", "postgres"))
async def interrupting(request, tmp_path):
    return wrap(Interrupting, await open_store(store_url(request.param, tmp_path / "store")))


async def compacted(inner, name):
    with suppress(SessionBusy):  # the worker holds the session by now
        await compacting.compact(inner, name, 10, by="", patience=0.0)


BESIDE = {
    "run": lambda case: case.run(task=f"{LONG}, asked 0"),
    "run with the key of a failed turn": lambda case: case.run(task=f"{LONG}: the first try", key="broken"),
    "run with a known key": lambda case: case.run(task=f"{LONG}, asked 5", key="k5"),
    "resume": lambda case: case.resume(),
    "discard": lambda case: case.discard(),
    "rewind": lambda case: case.rewind(10),
    "edit": lambda case: case.edit(lambda state: state),
    "reset": lambda case: case.reset(),
    "history": numbers,
}


@pytest.mark.fault("F34")
@pytest.mark.parametrize("how", BESIDE)
async def test_a_compaction_between_any_two_calls_of_a_worker_is_neither_damage_nor_lost_history(interrupting, how):
    """It removes the last turn that the worker has written, and texts that the worker is about to say again."""
    inner, outcomes = interrupting.inner, Counter()
    async with midturn.open("memory://") as template, midturn.open(store=interrupting) as store:
        case = await fill(template)
        await case.reset()
        head, filled = await template.store.head("case"), await rows(template)
        for number in range(100):
            name = f"case {number}"
            await inner.write(a_write(name, rows=filled, data=head.data))
            live = store.session(name, agents()[0])
            await live.run(task="its last turn")
            await Session(inner, name, agents()[0], AutoGen()).run(task="of another worker")
            interrupting.left = number
            interrupting.act = partial(compacted, inner, name)
            try:
                await BESIDE[how](live)
            except NotFound:
                outcomes["not found"] += 1
            else:
                outcomes["done"] += 1
            async with midturn.open("memory://") as twin:
                await copied(store, twin, name)
                await kept(twin.session(name, agents()[0]), 1)
            await live.run(task="and it continues")
            if interrupting.left is not None:  # it calls the store less often than that
                break
    assert set(outcomes) == ({"not found", "done"} if "key" in how else {"done"})


class Killed(Exception):
    """The process dies here."""


class Dying(StoreWrapper):
    """A store whose process dies before or after one of its writes."""

    def __init__(self, inner, at, when):
        super().__init__(inner)
        self.at, self.when = at, when

    async def write(self, write):
        self.at -= 1
        if self.at == 0 and self.when == "before":
            raise Killed
        head = await super().write(write)
        if self.at == 0:
            raise Killed
        return head


@pytest.mark.fault("F1")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_compaction_that_is_killed_at_any_write_leaves_a_session_that_works(pair, monkeypatch, when):
    monkeypatch.setattr(compacting, "REMOVALS", 1)
    store, _ = pair
    writes = 0
    for at in range(1, 30):
        name = f"case-{at}"
        await fill(store, turns=4, session=name)
        async with midturn.open("memory://") as twin:
            await copied(store, twin, name)
            dying = Dying(store.store, at, when)
            try:
                await compacting.compact(dying, name, 5, by="", patience=5.0)
                break
            except Killed:
                writes = at
            await free(store, name)
            other = twin.session(name, agents()[0])
            cut = progress_of(await store.store.head(name)).first == 5
            assert await kept(store.session(name), 1) == await kept(other, 5 if cut else 1)
            if at % 2:  # a worker comes in between, and says what was just removed, or is about to be
                for one in (store, twin):
                    factory, _ = agents(f"{LONG}, said 0")
                    await one.session(name, factory).run(task=f"{LONG}, asked 0")
            await store.session(name).compact(before=5)
            head = progress_of(await store.store.head(name))
            assert (head.first, head.swept) == (5, head.holes)
            fresh = store.session(name, agents()[0])
            assert await kept(fresh, 1, 6) == await kept(other, 5, 6)
            assert said(await fresh.run(task="more")) == said(await other.run(task="more"))
    assert writes > 3


async def free(store, name):
    """End the lease of a worker that died: this process, whose number it has, lives on."""
    head = await store.store.head(name)
    if head.owner is not None:
        write = a_write(name, head.seq, epoch=head.epoch, status=head.status, labels=head.labels, data=head.data)
        await store.store.write(write)


# Copies


async def test_a_compacted_session_is_copied_and_an_older_copy_follows(pair, monkeypatch):
    store, twin = pair
    case = await fill(store)
    await copied(store, twin)
    await case.compact(before=3)
    for chunk in (copying.CHUNK, 1):
        monkeypatch.setattr(copying, "CHUNK", chunk)
        monkeypatch.setattr(copying, "REMOVALS", chunk)
        assert await copied(store, twin) == "copied"
        assert await rows(twin) == await rows(store)
        assert await copied(store, twin) == "unchanged"
        await store.session("case", agents()[0]).run(task="on it goes")
        await case.compact(before=6)
    assert await copied(store, twin) == "copied"
    assert await rows(twin) == await rows(store)
    assert await kept(twin.session("case"), 1) == await kept(case, 6)


async def test_a_copy_that_was_compacted_itself_is_not_overwritten(both):
    store, twin = both
    await fill(store)
    await copied(store, twin)
    await twin.session("case").compact(before=5)
    before = await rows(twin)
    with pytest.raises(Conflict, match="nothing was overwritten"):
        await copied(store, twin)
    assert await rows(twin) == before
    assert await copied(twin, store) == "copied"
    assert await rows(store) == before


async def test_another_session_of_the_same_id_is_not_replaced_by_a_compacted_one(both):
    store, twin = both
    case = await fill(store)
    await twin.session("case", agents("something else")[0]).run(task="another case")
    await case.compact(before=5)
    before = await rows(twin)
    with pytest.raises(Conflict):
        await copied(store, twin)
    assert await rows(twin) == before


# Damage


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_body_that_is_needed_is_missed(memory, where):
    case = await fill(memory)
    await case.compact(before=5)
    head = await memory.store.head("case")
    found = await memory.store.rows("case", Kind.BODY)
    holes = progress_of(head).holes
    if where == "after":
        await memory.session("case", agents()[0]).run(task=LONG)
        head = await memory.store.head("case")
        found = await memory.store.rows("case", Kind.BODY, start=holes)
    gone = Removal(Kind.BODY, found[-1].n, found[-1].n + 1)
    write = a_write("case", head.seq, epoch=head.epoch, status=head.status, data=head.data, removes=[gone])
    await memory.store.write(replace(write, labels=head.labels))
    with pytest.raises(StateInvalid):
        await memory.session("case", agents()[0]).run(task="more")


# Any states


MESSAGES = st.lists(
    st.fixed_dictionaries({"source": st.sampled_from("ab"), "content": st.sampled_from([LONG, LONG + "!", "x", None])}),
    max_size=4,
)
STATES = st.dictionaries(
    st.sampled_from(["one", "two", "$three"]),
    MESSAGES | st.sampled_from([LONG, 1, {"deep": [LONG, {"$": 7, "n": 1}]}, [[LONG]]]),
    max_size=3,
)


class Any:
    """Something whose state is whatever a test says."""

    def __init__(self):
        self.state = {}

    async def save_state(self):
        return self.state

    async def load_state(self, state):
        self.state = state


def said_by(*sources):
    return {"one": [{"source": source, "content": "x"} for source in sources]}


@example(states=[said_by(*"abc"), said_by(*"ad"), said_by(*"ade"), said_by(*"adef")], more=[], before=3)
@given(states=st.lists(STATES, min_size=2, max_size=7), more=st.lists(STATES, max_size=3), before=st.integers(2, 7))
@settings(max_examples=200, deadline=None)
def test_any_states_from_a_turn_on_are_as_they_were(states, more, before):
    before = min(before, len(states))

    async def run():
        async with midturn.open("memory://") as store, midturn.open("memory://") as twin:
            live = Any()
            for state in states:
                live.state = state
                await store.save("case", live)
                await twin.save("case", live)
            done = await store.session("case").compact(before=before)
            assert done.turns == before - 1
            for state in more:
                live.state = state
                await store.save("case", live)
                await twin.save("case", live)
            for number in range(before, len(states) + len(more) + 1):
                tree = await store.session("case").at(number).tree()
                assert tree == await twin.session("case").at(number).tree()
                assert tree["state"] == (states + more)[number - 1]
            sizes = [sum(len(row.data) for row in await rows(one)) for one in (store, twin)]
            assert sizes[0] <= sizes[1] + 200

    asyncio.run(run())
