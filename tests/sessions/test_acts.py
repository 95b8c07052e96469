"""Rewinding, editing and forking a session: what is true afterwards, and what is refused."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.memory import ListMemory
from cast import Gate, agents, crash, expected, panel, said
from kinds import assistant, round_robin
from scripted import Scripted, calls, remembered

import midturn


async def three_turns(store, factory=assistant, session="case"):
    case = store.session(session, factory)
    for task in ("one", "two", "three"):
        await case.run(task=task)
    return case


async def origins(case):
    return [(turn.number, turn.origin, turn.left_behind_by) async for turn in case.history()]


# --- rewind


async def test_a_rewind_makes_a_checkpoint_with_the_state_of_an_older_one(store):
    case = await three_turns(store)
    before = await case.at(1).tree()
    assert await case.rewind(1, by="ann@desk", why="wrong customer") == 4
    assert await case.at(4).tree() == before
    assert said(await case.run(task="four")) == await expected("one", "four")
    other = store.session("case", assistant)
    assert said(await other.run(task="five")) == await expected("one", "four", "five")


async def test_the_turns_between_stay_and_are_marked_as_left_behind(store):
    case = await three_turns(store)
    await case.rewind(1)
    await case.run(task="four")
    assert await origins(case) == [
        (1, "run", None),
        (2, "run", 4),
        (3, "run", 4),
        (4, "rewind", None),
        (5, "run", None),
    ]
    assert [(turn.number, turn.left_behind_by) async for turn in case.history(last=3)] == [(3, 4), (4, None), (5, None)]
    assert (await case.turn(2)).left_behind_by == 4
    assert (await case.turn(2)).messages[-1].content
    assert (await case.turn(4)).restores == 1


async def test_a_rewind_of_what_somebody_has_seen_is_refused_when_it_has_changed_since(memory):
    case = await three_turns(memory)
    seen = (await memory.info("case")).seq
    await memory.label("case", {"team": "claims"})
    now = await memory.info("case")
    with pytest.raises(midturn.Conflict, match="changed session 'case'"):
        await case.rewind(1, seq=seen)
    assert await memory.info("case") == now
    assert await case.rewind(1, seq=now.seq) == 4


async def test_a_rewind_of_a_rewind_takes_the_turns_back_that_were_left_behind(store):
    case = await three_turns(store)
    await case.rewind(1)
    await case.run(task="four")
    assert await case.rewind(3) == 6
    assert said(await case.run(task="five")) == await expected("one", "two", "three", "five")
    assert [number for number, _, by in await origins(case) if by == 6] == [4, 5]
    assert [number for number, _, by in await origins(case) if by is None] == [1, 2, 3, 6, 7]


async def test_a_rewind_into_turns_that_were_left_behind_marks_the_line_that_it_takes(store):
    case = await three_turns(store)
    await case.rewind(1)  # 4
    await case.run(task="four")  # 5
    await case.rewind(2)  # 6: 3, 4 and 5 are left behind, and 2 is not
    assert [by for _, _, by in await origins(case)] == [None, None, 6, 6, 6, None]
    await case.rewind(5)  # 7: back on the line of 4, which had left 2 and 3 behind
    assert [by for _, _, by in await origins(case)] == [None, 4, 4, None, None, 7, None]
    await case.rewind(4)  # 8: a rewind itself
    assert [by for _, _, by in await origins(case)] == [None, 4, 4, None, 8, 8, 8, None]


async def test_who_rewound_and_why_is_in_the_history(store):
    case = await three_turns(store)
    await case.rewind(1, by="ann@desk", why="wrong customer")
    [decision] = (await case.turn(4)).decisions
    assert (decision.kind, decision.question, decision.answer) == ("rewind", "Go back to checkpoint 1?", "rewind")
    assert (decision.by, decision.why, decision.arguments) == ("ann@desk", "wrong customer", {"checkpoint": 1})


async def test_a_session_without_agents_can_be_rewound(store):
    await three_turns(store, round_robin)
    assert await store.session("case").rewind(2, by="ann") == 4
    before = await store.session("case").at(2).tree()
    assert await store.session("case").at(4).tree() == before


async def test_keys_of_turns_that_were_left_behind_keep_their_recorded_results(store):
    case = store.session("case", assistant)
    await case.run(task="one")
    first = await case.run(task="two", key="mail-2")
    await case.rewind(1)
    again = await case.run(task="two", key="mail-2")
    assert again.recorded
    assert (again.turn, said(again)) == (2, said(first))
    assert (await store.info("case")).turns == 3


@pytest.mark.parametrize("number", [0, -1, 4, 10**30])
async def test_a_checkpoint_that_is_not_there_cannot_be_restored(store, number):
    case = await three_turns(store)
    head = await store.store.head("case")
    with pytest.raises(midturn.NotFound, match="checkpoint"):
        await case.rewind(number)
    assert (await store.store.head("case")).seq == head.seq
    with pytest.raises(midturn.NotFound):
        await store.session("absent").rewind(1)


async def test_a_turn_that_failed_has_no_checkpoint_to_go_back_to(store):
    factory, _ = agents("first", ConnectionError("503"))
    case = store.session("case", factory)
    await case.run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await case.run(task="two")
    await case.run(task="three")
    with pytest.raises(midturn.NotFound, match="has no checkpoint 2; the latest is 3"):
        await case.rewind(2)


OPEN = {
    "waiting": lambda store: store.session("case", panel).run(task="write"),
    "interrupted": lambda store: crash(store, agents()[0], task="write"),
    "failed": lambda store: store.session("case", agents(ConnectionError("503"))[0]).run(task="write"),
}


@pytest.mark.parametrize("doing", OPEN)
async def test_a_rewind_is_refused_while_a_turn_is_open_unless_the_turn_is_given_up(store, doing):
    await store.save("case", panel() if doing == "waiting" else assistant())
    before = await store.session("case").at(1).tree()
    try:
        await OPEN[doing](store)
    except midturn.TurnFailed:
        assert doing == "failed"
    assert (await store.info("case")).status == doing
    head = await store.store.head("case")
    with pytest.raises(midturn.TurnFailed, match="is still open") as caught:
        await store.session("case").rewind(1)
    assert "discard=True" in caught.value.hint
    with pytest.raises(midturn.TurnFailed, match="is still open"):
        await store.session("case").edit(lambda state: state)
    assert (await store.store.head("case")).seq == head.seq
    assert await store.session("case").rewind(1, discard=True, by="ann") == 3
    info = await store.info("case")
    assert (info.status, info.turns, info.checkpoint) == ("idle", 3, 3)
    assert await store.session("case").at(3).tree() == before
    turns = [turn async for turn in store.session("case").history()]
    assert [(turn.status, turn.left_behind_by) for turn in turns] == [("done", None), ("cancelled", 3), ("done", None)]
    assert [(each.kind, each.by) for turn in turns for each in turn.decisions] == [
        ("discard", "ann"),
        ("rewind", "ann"),
    ]
    assert await store.session("case").resume() is None


async def test_what_a_given_up_turn_did_counts_when_its_key_is_delivered_again(memory):
    done = []

    @midturn.tool(effect="unsafe")
    async def pay(order: str) -> str:
        """Pay."""
        done.append(order)
        return "paid"

    steps = ["first", lambda _: calls(("pay", '{"order": "A1"}')), ConnectionError("503")]
    factory, _ = agents(*steps, tools=[pay], reflect_on_tool_use=True)
    case = memory.session("case", factory)
    await case.run(task="one")
    with pytest.raises(midturn.TurnFailed):
        await case.run(task="pay", key="k")
    await case.rewind(1, discard=True)
    factory, _ = agents(tools=[pay], reflect_on_tool_use=True)
    await memory.session("case", factory).run(task="pay", key="k")
    assert done == ["A1"]


async def test_a_rewind_beside_a_running_worker_is_refused_and_changes_nothing(memory):
    gate = Gate()
    factory, _ = agents("first", gate)
    await memory.session("case", factory).run(task="one")
    running = asyncio.ensure_future(memory.session("case", factory).run(task="two"))
    await gate.reached.wait()
    for act in (
        lambda case: case.rewind(1, discard=True),
        lambda case: case.edit(lambda state: state),
        lambda case: case.reset(),
    ):
        with pytest.raises(midturn.SessionBusy):
            await act(memory.session("case", assistant, busy="raise"))
    gate.open()
    assert (await running).turn == 2
    assert await memory.session("case").rewind(1) == 3


async def test_a_live_agent_that_is_given_goes_back_too(memory):
    agent = assistant()
    case = memory.session("case", agent)
    await case.run(task="one")
    before = await agent.save_state()
    await case.run(task="two")
    await case.rewind(1)
    assert await agent.save_state() == before
    assert said(await case.run(task="three")) == await expected("one", "three")


async def test_a_live_agent_whom_the_older_state_does_not_fit_stays_and_so_does_the_session(memory):
    await memory.save("case", round_robin())
    await memory.save("case", assistant())
    case = memory.session("case", assistant())
    await case.run(task="one")
    with pytest.raises(midturn.StateInvalid) as caught:
        await case.rewind(1)
    assert caught.value.session == "case"
    assert (await memory.info("case")).turns == 3
    assert said(await case.run(task="two")) == await expected("one", "two")


# --- edit


def remembering():
    return AssistantAgent("assistant", Scripted(remembered), memory=[ListMemory()])


async def test_an_edit_corrects_what_was_said_and_a_rewind_undoes_it(store):
    case = await three_turns(store)
    before = await case.at(3).tree()
    assert await case.edit(lambda state: state.correct("two", "deux"), by="ann", why="typo") == 4
    assert await case.at(3).tree() == before
    told = [message.get("content") for message in (await case.at(4).state())["llm_context"]["messages"]]
    assert [text for text in told if text in ("one", "two", "deux", "three")] == ["one", "deux", "three"]
    turn = await case.turn(4)
    assert (turn.origin, [(each.kind, each.by, each.why) for each in turn.decisions]) == (
        "edit",
        [("edit", "ann", "typo")],
    )
    assert (await case.run(task="four")).turn == 5
    assert await case.rewind(3) == 6
    assert await case.at(6).tree() == before


async def test_an_async_function_can_edit_too_and_a_session_without_agents_can_be_edited(store):
    await three_turns(store)

    async def change(state):
        await asyncio.sleep(0)
        return state.drop_message("two")

    assert await store.session("case").edit(change) == 4
    assert "two" not in str(await store.session("case").at(4).state())


async def test_a_memory_is_seeded(store):
    case = store.session("case", remembering)
    await case.run(task="one")
    await case.edit(lambda state: state.seed_memory("assistant", "The customer is in Lyon."))
    assert "Lyon" in str(await case.at(2).beside())
    assert "Lyon" in str((await case.run(task="where?")).messages)


def _in_place(state):
    state.tree["state"] = {}
    return state


def _raise(state):
    raise LookupError("no such customer")


WRONG = {
    "another class": (lambda state: 5, midturn.InvalidArgument, "int, not a state"),
    "nothing": (lambda state: None, midturn.InvalidArgument, "return statement missing"),
    "changed in place": (_in_place, midturn.InvalidArgument, "in place"),
    "its own error": (_raise, LookupError, "no such customer"),
    "another form": (
        lambda state: state.edit(lambda tree: {"state": 5, "x": 1}),
        midturn.StateInvalid,
        "not the state",
    ),
    "not of the agents": (lambda state: state.edit(lambda tree: {"state": {}}), midturn.StateInvalid, "llm_context"),
    "a text that nobody said": (lambda state: state.correct("x", "y"), midturn.InvalidArgument, "nobody"),
    "a message that is not there": (lambda state: state.drop_message("x"), midturn.InvalidArgument, "no message"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_an_edit_that_breaks_the_state_is_refused_and_nothing_changes(store, what):
    change, error, text = WRONG[what]
    case = await three_turns(store)
    head = await store.store.head("case")
    with pytest.raises(error, match=text):
        await case.edit(change, by="ann")
    assert (await store.store.head("case")).seq == head.seq
    assert said(await case.run(task="four")) == await expected("one", "two", "three", "four")


async def test_an_edit_that_does_not_fit_a_live_agent_that_is_given_is_refused_too(memory):
    case = memory.session("case", assistant())
    await case.run(task="one")
    with pytest.raises(midturn.StateInvalid) as caught:
        await case.edit(lambda state: state.edit(lambda tree: {"state": {}}))
    assert caught.value.session == "case"
    assert (await memory.info("case")).turns == 1
    assert said(await case.run(task="two")) == await expected("one", "two")


async def test_an_edit_needs_a_function_and_a_checkpoint(memory):
    with pytest.raises(midturn.InvalidArgument, match="function"):
        await memory.session("case", assistant).edit(5)
    with pytest.raises(midturn.NotFound):
        await memory.session("case", assistant).edit(lambda state: state)


async def test_an_edit_by_newer_agents_gets_the_migrated_state_and_has_their_version(memory):
    old = midturn.Blueprint("desk", round_robin)
    await memory.session("case", old).run(task="one")
    new = midturn.Blueprint("desk", round_robin, version=2)
    new.migration(1, 2)(lambda state: state.redact("one", "uno"))
    seen = []

    def change(state):
        seen.append(state)
        return state.reset_agent(state.agents[0])

    await memory.session("case", new).edit(change)
    assert "uno" in str(seen[0].tree)
    assert await memory.session("case").at(2).version() == 2
    assert (await memory.session("case", new).run(task="two")).turn == 3
    with pytest.raises(midturn.InvalidArgument, match="factory"):
        await memory.session("case").edit(change)


async def test_an_edit_is_made_again_if_another_worker_was_faster(memory):
    case = await three_turns(memory)
    times = []

    async def change(state):
        if not times:
            await memory.session("case").rewind(1)
        times.append(state)
        return state.correct("one", "uno")

    assert await case.edit(change) == 5
    assert len(times) == 2
    assert "uno" in str(await case.at(5).state())
    assert "two" not in str(await case.at(5).state())


# --- fork


async def test_a_fork_begins_with_the_latest_checkpoint_and_its_history_says_so(store):
    case = await three_turns(store)
    fork = await case.fork("case-b", labels={"try": "2"}, by="ann", why="what if")
    info = await store.info("case-b")
    assert (info.forked_from, info.labels) == (midturn.Fork(session="case", checkpoint=3), {"try": "2"})
    assert said(await fork.run(task="four")) == await expected("one", "two", "three", "four")
    [first, _] = [turn async for turn in fork.history()]
    assert (first.origin, first.forked_from) == ("fork", midturn.Fork(session="case", checkpoint=3))
    assert [(each.kind, each.by, each.why, each.arguments) for each in first.decisions] == [
        ("fork", "ann", "what if", {"session": "case", "checkpoint": 3})
    ]
    assert (await store.info("case")).turns == 3


async def test_a_fork_can_show_the_turns_before_it(store):
    case = await three_turns(store)
    await case.rewind(1)
    fork = await case.fork("case-b", at=2)
    await fork.run(task="four")
    again = await fork.fork("case-c")
    await case.run(task="five")
    told = [(turn.session, turn.number, turn.left_behind_by) async for turn in again.history(origins=True)]
    assert told == [
        ("case", 1, None),
        ("case", 2, None),
        ("case-b", 1, None),
        ("case-b", 2, None),
        ("case-c", 1, None),
    ]
    later = [(turn.session, turn.number) async for turn in again.history(last=4, origins=True)]
    assert later == [("case", 2), ("case-b", 1), ("case-b", 2), ("case-c", 1)]
    assert [turn.number async for turn in again.history(last=4)] == [1]
    await store.delete("case")
    assert [turn.session async for turn in again.history(origins=True)] == ["case-b", "case-b", "case-c"]


async def test_a_fork_after_a_rewind_shows_what_its_origin_had_left_behind(store):
    case = await three_turns(store)
    await case.rewind(1)
    fork = await case.fork("case-b")
    told = [(turn.session, turn.number, turn.left_behind_by) async for turn in fork.history(origins=True)]
    assert told == [("case", 1, None), ("case", 2, 4), ("case", 3, 4), ("case", 4, None), ("case-b", 1, None)]


async def test_a_fork_of_a_running_session_takes_the_last_checkpoint(memory):
    gate = Gate()
    factory, _ = agents(remembered, gate)
    await memory.session("case", factory).run(task="one")
    running = asyncio.ensure_future(memory.session("case", factory).run(task="two"))
    await gate.reached.wait()
    fork = await memory.session("case", factory).fork("case-b")
    assert said(await fork.run(task="three")) == await expected("one", "three")
    gate.open()
    assert (await running).turn == 2


async def test_a_fork_onto_an_existing_id_is_refused_and_nothing_is_lost(store):
    case = await three_turns(store)
    await store.session("other", assistant).run(task="mine")
    head = await store.store.head("other")
    for name in ("other", "case"):
        with pytest.raises(midturn.Conflict, match="there is already a session"):
            await case.fork(name)
    assert (await store.store.head("other")).seq == head.seq
    await store.delete("other")
    with pytest.raises(midturn.SessionDeleted):
        await case.fork("other")


async def test_a_fork_onto_a_deleted_id_is_refused_though_its_origin_was_begun_anew(store):
    for name in ("case", "case-b"):
        await three_turns(store, session=name)
        await store.delete(name)
    case = store.session("case", assistant, reuse=True)
    await case.run(task="one")
    with pytest.raises(midturn.SessionDeleted):
        await case.fork("case-b")
    assert (await store.info("case-b")).status == "deleted"


async def test_of_many_forks_onto_one_id_one_is_made(store):
    cases = [await three_turns(store, session=f"case-{n}") for n in range(4)]
    made = await asyncio.gather(*(case.fork("other") for case in cases), return_exceptions=True)
    [fork] = [each for each in made if not isinstance(each, midturn.Conflict)]
    assert fork.id == "other"
    assert [turn.number async for turn in fork.history()] == [1]


@pytest.mark.parametrize("at", [0, 4, -1])
async def test_a_fork_of_a_checkpoint_that_is_not_there_is_refused(memory, at):
    case = await three_turns(memory)
    with pytest.raises(midturn.NotFound):
        await case.fork("other", at=at)
    with pytest.raises(midturn.NotFound, match="there is no session"):
        await memory.session("absent").fork("other")
    assert await memory.store.head("other") is None


BAD = {
    "by": {"by": 5},
    "an empty by": {"by": ""},
    "why": {"why": 5},
    "a long why": {"why": "x" * 2001},
    "half a character": {"why": "\ud800"},
}


@pytest.mark.parametrize("given", BAD.values(), ids=BAD)
async def test_who_and_why_are_texts(memory, given):
    case = await three_turns(memory)
    for act in (
        lambda: case.rewind(1, **given),
        lambda: case.edit(lambda state: state, **given),
        lambda: case.fork("other", **given),
        lambda: case.reset(**given),
    ):
        with pytest.raises(midturn.InvalidArgument):
            await act()
    assert (await memory.info("case")).turns == 3
    assert await memory.store.head("other") is None
