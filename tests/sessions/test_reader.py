"""Reading a session without running it: its status, its open turn, the calls of a turn."""

import asyncio
import sqlite3
from datetime import UTC

import pytest
from autogen_core import CancellationToken
from cast import Gate, agents, crash
from kinds import assistant

import midturn
from midturn.sessions.reader import SessionReader


async def statuses(store):
    return {info.id: info.status async for info in store.sessions()}


async def look_up(order: str) -> str:
    """Look an order up."""
    return f"order {order} is on its way"


async def test_a_session_says_how_it_stands(store):
    factory, _ = agents()
    case = store.session("case", midturn.Blueprint("support", factory, version=3), labels={"team": "claims"})
    await case.run(task="one")
    info = await store.info("case")
    assert (info.id, info.status, info.owner, info.turns, info.checkpoint) == ("case", "idle", None, 1, 1)
    assert (info.blueprint, info.version, info.labels, info.forked_from) == ("support", 3, {"team": "claims"}, None)
    assert info.created <= info.updated
    assert info.created.tzinfo is UTC
    assert [listed async for listed in store.sessions()] == [info]
    await case.run(task="two")
    assert (await store.info("case")).seq > info.seq


async def test_a_session_that_is_not_there_is_not_found(store):
    with pytest.raises(midturn.NotFound, match="there is no session 'absent'") as caught:
        await store.info("absent")
    assert isinstance(caught.value, LookupError)
    assert caught.value.session == "absent"
    assert await store.session("absent").open_turn() is None
    with pytest.raises(midturn.NotFound, match="there is no session 'absent'"):
        await store.session("absent").turn(1)


async def test_what_was_deleted_is_told(store):
    await store.session("case", agents()[0]).run(task="one")
    await store.delete("case")
    assert (await store.info("case")).status == "deleted"


async def test_a_fork_remembers_what_it_began_with(store):
    case = store.session("case", agents()[0])
    await case.run(task="one")
    await case.run(task="two")
    fork = await case.fork("other", at=1)
    await fork.run(task="three")
    assert (await store.info("other")).forked_from == midturn.Fork(session="case", checkpoint=1)
    again = await fork.fork("third", at=2)
    assert (await store.info(again.id)).forked_from == midturn.Fork(session="other", checkpoint=2)


async def test_a_turn_that_a_living_worker_runs_is_running(store):
    gate = Gate()
    case = store.session("case", agents(gate)[0])
    running = asyncio.create_task(case.run(task="one"))
    await gate.reached.wait()
    info = await store.info("case")
    assert (info.status, info.owner is not None) == ("running", True)
    turn = await case.open_turn()
    assert (turn.number, turn.status, turn.attempts, list(turn.calls)) == (1, "running", 1, [])
    assert [found.id async for found in store.sessions(status="running")] == ["case"]
    assert [found async for found in store.sessions(status="interrupted")] == []
    gate.open()
    await running


async def test_a_turn_whose_worker_died_is_interrupted_everywhere(store):
    factory, _ = agents()
    await crash(store, factory, task="one")
    info = await store.info("case")
    assert (info.status, info.owner) == ("interrupted", None)
    assert [found.id async for found in store.sessions(status="interrupted")] == ["case"]
    assert [found async for found in store.sessions(status="running")] == []
    case = store.session("case", factory)
    turn = await case.open_turn()
    assert (turn.status, turn.task[0].content, turn.attempts) == ("interrupted", "one", 1)
    assert [found.status async for found in case.history()] == ["interrupted"]
    await case.resume()
    assert await case.open_turn() is None
    assert (await case.turn(1)).attempts == 2


async def test_cancelled_is_not_failed(store):
    gate, token = Gate(), CancellationToken()
    cancelled = store.session("cancelled", agents(gate)[0])
    running = asyncio.create_task(cancelled.run(task="one", cancellation_token=token))
    await gate.reached.wait()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    failed = store.session("failed", agents(ConnectionError("503"))[0])
    with pytest.raises(midturn.TurnFailed):
        await failed.run(task="one")
    assert await statuses(store) == {"cancelled": "cancelled", "failed": "failed"}
    assert (await cancelled.open_turn()).status == "cancelled"
    assert (await failed.open_turn()).error == "ConnectionError: 503"
    assert [info.id async for info in store.sessions(status="failed")] == ["failed"]


async def test_sessions_of_several_statuses_are_listed_by_id_and_once(store):
    for name in ("a", "c", "e"):
        await store.session(name, agents()[0]).run(task="one")
    for name in ("b", "d"):
        with pytest.raises(midturn.TurnFailed):
            await store.session(name, agents(ConnectionError("503"))[0]).run(task="one")
    await store.delete("e")
    both = [info.id async for info in store.sessions(status=["failed", "idle"])]
    assert both == ["a", "b", "c", "d"]
    assert [info.id async for info in store.sessions(status=["deleted", "failed"])] == ["b", "d", "e"]
    assert [info.id async for info in store.sessions(status=[])] == []


async def test_sessions_can_be_listed_by_their_last_change_and_counted(store):
    for name in ("a", "b", "c"):
        await store.session(name, agents()[0]).run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await store.session("d", agents(ConnectionError("503"))[0]).run(task="one")
    await crash(store, agents()[0], task="one")
    await store.session("a", agents()[0]).run(task="two")
    await store.delete("b")
    assert [info.id async for info in store.sessions(order="updated")] == ["a", "case", "d", "c"]
    found = store.sessions(order="updated", status=["idle", "failed", "deleted"])
    assert [info.id async for info in found] == ["b", "a", "d", "c"]
    counts = await store.counts()
    assert {word: count for word, count in counts.items() if count} == {
        "idle": 2,
        "interrupted": 1,
        "failed": 1,
        "deleted": 1,
    }
    assert counts["running"] == 0
    with pytest.raises(midturn.InvalidArgument, match="is 'newest'; it can be one of id, updated"):
        [info async for info in store.sessions(order="newest")]


async def test_a_turn_has_its_calls_until_they_are_removed(store):
    from scripted import calls

    factory, _ = agents(calls(("look_up", '{"order": "A1"}')), "done", tools=[look_up], reflect_on_tool_use=True)
    case = store.session("case", factory, journals=1)
    await case.run(task="one")
    turn = await case.turn(1)
    assert [(call.kind, call.name, call.attempt) for call in turn.calls] == [
        ("model", None, 1),
        ("tool", "look_up", 1),
        ("model", None, 1),
    ]
    asked, called, answered = turn.calls
    assert called.arguments == '{"order":"A1"}'
    assert called.result["result"]["result"][0]["content"] == "order A1 is on its way"
    assert answered.result["content"] == "done"
    assert turn.started <= asked.at <= called.at <= answered.at <= turn.ended
    assert (await case.turn(1)).questions == ()
    for task in ("two", "three", "four"):
        await case.run(task=task)
    assert (await case.turn(1)).calls is None
    assert len((await case.turn(4)).calls) == 1


async def test_a_turn_that_failed_keeps_its_calls_when_others_follow(store):
    from scripted import calls

    steps = calls(("look_up", '{"order": "A1"}')), ConnectionError("503"), ConnectionError("503")
    case = store.session("case", agents(*steps, tools=[look_up], reflect_on_tool_use=True)[0])
    with pytest.raises(midturn.TurnFailed):
        await case.run(task="one")
    assert [call.kind for call in (await case.open_turn()).calls] == ["model", "tool"]
    with pytest.raises(midturn.TurnFailed):
        await case.resume()
    await case.run(task="two")
    turn = await case.turn(1)
    assert [call.kind for call in turn.calls] == ["model", "tool"]
    assert (turn.status, turn.attempts) == ("failed", 2)


async def test_calls_that_were_not_recorded_are_not_there(store):
    case = store.session("case", agents("hello", ConnectionError("503"))[0], durability="turn")
    await case.run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await case.run(task="two")
    await case.run(task="three")
    assert [(await case.turn(number)).calls for number in (1, 2, 3)] == [None, None, None]


async def test_a_call_that_is_missing_is_not_taken_for_one_that_was_removed(tmp_path):
    async with midturn.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        case = store.session("case", agents()[0])
        await case.run(task="one")
        with sqlite3.connect(tmp_path / "store.db") as db:
            assert db.execute("DELETE FROM turn_calls").rowcount == 1
        with pytest.raises(midturn.StateInvalid, match="case call 0: is missing"):
            await case.turn(1)
        assert [turn.status async for turn in case.history()] == ["done"]


async def test_what_was_saved_by_hand_was_begun_once_whatever_failed_before(store):
    live = agents(ConnectionError("503"), ConnectionError("503"))[0]()
    case = store.session("case", live)
    with pytest.raises(midturn.TurnFailed):
        await case.run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await case.resume()
    await case.save()
    assert [(turn.number, turn.attempts) async for turn in case.history()] == [(1, 2), (2, 1)]


async def test_a_fork_says_the_version_of_what_it_began_with(store):
    case = store.session("case", midturn.Blueprint("support", agents()[0], version=3))
    await case.run(task="one")
    fork = await case.fork("other", at=1)
    info = await store.info("other")
    assert (info.version, info.blueprint) == (3, "support")
    assert await fork.at(1).version() == 3


async def test_the_last_turns_can_be_asked_for(store):
    case = store.session("case", agents()[0])
    for task in ("one", "two", "three"):
        await case.run(task=task)
    assert [turn.number async for turn in case.history(last=2)] == [2, 3]
    assert [turn.number async for turn in case.history(last=9)] == [1, 2, 3]


async def test_turns_can_be_read_page_by_page_backwards_with_their_calls(store):
    case = store.session("case", agents()[0])
    for task in ("one", "two", "three"):
        await case.run(task=task)
    reader = SessionReader(store.store, "case")
    pages = {before: [turn async for turn in reader.history(last=2, before=before, calls=True)] for before in (4, 2, 1)}
    assert {before: [turn.number for turn in turns] for before, turns in pages.items()} == {4: [2, 3], 2: [1], 1: []}
    assert [turn.calls for turn in pages[4]] == [(await reader.turn(number)).calls for number in (2, 3)]
    assert [turn.calls is not None async for turn in reader.history(last=1)] == [False]


async def _called(function, *arguments, **options):
    function(*arguments, **options)


WRONG_ARGUMENTS = {
    "a turn that is a text": lambda store: store.session("case").turn("1"),
    "a turn that is a fraction": lambda store: store.session("case").turn(1.0),
    "a turn that is a truth": lambda store: store.session("case").turn(True),
    "a checkpoint that is a text": lambda store: store.session("case").at("1").state(),
    "a checkpoint that is nothing": lambda store: store.session("case").at(None).state(),
    "a number of turns that is a text": lambda store: anext(store.session("case").history(last="1")),
    "a turn to replay that is a text": lambda store: store.session("case", assistant).replay("1"),
    "a fork at a text": lambda store: store.session("case").fork("other", at="1"),
    "a question that is a number": lambda store: store.session("case").answer("yes", question=7),
    "a question that is a list": lambda store: store.session("case").answer("yes", question=[]),
    "a prefix that is a number": lambda store: anext(store.sessions(prefix=3)),
    "a prefix that is nothing": lambda store: anext(store.sessions(prefix=None)),
    "labels that are a number": lambda store: anext(store.sessions(labels=3)),
    "labels that are a list": lambda store: anext(store.sessions(labels=["a"])),
    "a status that is a number": lambda store: anext(store.sessions(status=3)),
    "statuses that are lists": lambda store: anext(store.sessions(status=[[]])),
    "an order that is a list": lambda store: anext(store.sessions(order=[])),
    "an id that is a number": lambda store: store.info(3),
    "labels to set that are a number": lambda store: store.label("case", 3),
    "a token that is a number": lambda store: store.session("case", assistant).run(task="one", cancellation_token=5),
    "a flag that is a text": lambda store: store.session("case", assistant).run(task="one", output_task_messages="no"),
    "a URL that is a number": lambda store: _called(midturn.open, 5),
    "effects that are a number": lambda store: _called(midturn.Blueprint, "support", assistant, effects=5),
    "an approval that is a text": lambda store: _called(midturn.tool, approval="yes"),
    "a scheme that is a number": lambda store: _called(midturn.register_store, 5, print),
    "an opener that is a number": lambda store: _called(midturn.register_store, "other", 5),
}


@pytest.mark.parametrize("attempt", WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
async def test_a_wrong_argument_of_a_reader_is_refused_by_name(memory, attempt):
    await memory.save("case", assistant())
    with pytest.raises(midturn.InvalidArgument):
        await attempt(memory)


@pytest.mark.parametrize("number", [-1, 0, 2, 2**31, 2**63, 2**64, 10**30])
async def test_a_turn_that_is_not_there_is_not_found_whatever_its_number(store, number):
    await store.save("case", assistant())
    case = store.session("case", assistant)
    for attempt in (case.turn(number), case.at(number).state(), case.replay(number)):
        with pytest.raises(midturn.NotFound):
            await attempt
