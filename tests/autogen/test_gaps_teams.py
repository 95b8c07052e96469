"""Teams that were built differently, selectors that are restored, and message types of one's own."""

import json
from typing import Literal

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import BaseTextChatMessage, StructuredMessage
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core.model_context import BufferedChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from gap_teams import Outage, imported, reloaded, restarted, saved, speakers, trio, uninterrupted
from kinds import TASKS, assistant, select, transcript
from pydantic import BaseModel, create_model
from scripted import Scripted, remembered

import midturn


@pytest.fixture
async def store():
    async with midturn.open("memory://") as store:
        yield store


async def test_plain_autogen_continues_with_the_wrong_speaker_when_participants_are_reordered():
    live, fresh = trio(), trio("cid bob ann")
    await live.run(task=TASKS[0])
    await fresh.load_state(await saved(live))
    assert speakers(transcript(await live.run(task=TASKS[1]))) == ["cid", "ann"]
    assert speakers(transcript(await fresh.run(task=TASKS[1]))) == ["ann", "cid"]


@pytest.mark.parametrize("order", ["cid bob ann", "bob cid ann", "cid ann bob", "ann cid bob", "bob ann cid"])
async def test_reordered_participants_continue_with_the_one_whose_turn_it_is(store, order):
    names = order.split()
    await restarted(store, trio, [TASKS[0]])
    case = store.session("case", lambda: trio(order))
    following = names[(names.index("cid") + 1) % 3]
    assert speakers(transcript(await case.run(task=TASKS[1]))) == ["cid", following]


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_a_turn_with_reordered_participants_is_as_before_but_for_the_order(store, turns):
    """With one speaker a turn, who speaks and what that one is shown do not depend on the order of the others."""

    def build(order="ann bob cid"):
        return trio(order, max_turns=1)

    await restarted(store, build, TASKS[:turns])
    [said] = await restarted(store, lambda: build("bob ann cid"), [TASKS[turns]])
    assert said == (await uninterrupted(build(), TASKS[: turns + 1]))[-1]


async def test_reordered_participants_of_a_live_team_continue_by_name_too(store):
    live, fresh = trio(), trio("cid bob ann")
    await live.run(task=TASKS[0])
    await store.save("case", live)
    await store.load("case", fresh)
    assert speakers(transcript(await fresh.run(task=TASKS[1]))) == ["cid", "bob"]


def nested(order):
    inner = RoundRobinGroupChat([assistant(name) for name in order.split()], max_turns=1, name="inner")
    return RoundRobinGroupChat([inner, assistant("lead")], max_turns=2, name="outer")


async def test_reordered_participants_of_an_inner_team_continue_by_name(store):
    await restarted(store, lambda: nested("ann bob cid"), TASKS[:2])
    [said] = await restarted(store, lambda: nested("bob cid ann"), [TASKS[2]])
    assert said == (await uninterrupted(nested("ann bob cid"), TASKS[:3]))[-1]
    assert speakers(said) == ["cid", "lead"]


async def test_plain_autogen_drops_a_removed_participant_in_silence():
    live, fresh = trio(), trio("ann bob")
    await live.run(task=TASKS[0])
    await fresh.load_state(await saved(live))
    assert set((await saved(fresh))["agent_states"]) == {"ann", "bob", "RoundRobinGroupChatManager"}


@pytest.mark.parametrize("order", ["ann bob cid dan", "ann bob cyd"])
async def test_plain_autogen_overwrites_some_participants_before_it_refuses_a_new_one(order):
    live, fresh = trio(), trio(order)
    await live.run(task=TASKS[0])
    await fresh.run(task="something else")
    with pytest.raises(ValueError, match="not found in the saved state"):
        await fresh.load_state(await saved(live))
    states, wanted = (await saved(fresh))["agent_states"], (await saved(live))["agent_states"]
    assert states["ann"] == wanted["ann"]
    assert states["RoundRobinGroupChatManager"] != wanted["RoundRobinGroupChatManager"]


CHANGES = {
    "removed": ("ann bob", {"cid"}),
    "the next speaker and another removed": ("bob", {"ann", "cid"}),
    "added": ("ann bob cid dan", {"dan"}),
    "renamed": ("ann bob cyd", {"cid", "cyd"}),
    "renamed and reordered": ("cid ben ann", {"bob", "ben"}),
}


def names_in(error):
    """Return the participants that the differences name."""
    said = " ".join(f"{path} {message}" for path, message in error.differences)
    return {name for name in ("ann", "bob", "cid", "dan", "cyd", "ben") if f" {name} " in _words(said)}


def _words(text):
    return f" {''.join(c if c.isalnum() else ' ' for c in text)} "


@pytest.mark.parametrize(("order", "named"), CHANGES.values(), ids=CHANGES)
async def test_another_set_of_participants_is_refused_by_name(store, order, named):
    await restarted(store, trio, [TASKS[0]])
    with pytest.raises(midturn.Drifted) as caught:
        await store.session("case", lambda: trio(order)).run(task=TASKS[1])
    assert named <= names_in(caught.value)
    assert all(name in str(caught.value) for name in named)
    assert await restarted(store, trio, [TASKS[1]]) == (await uninterrupted(trio(), TASKS[:2]))[1:]


@pytest.mark.parametrize(("order", "named"), CHANGES.values(), ids=CHANGES)
async def test_a_live_team_with_other_participants_is_left_as_it_was(store, order, named):
    await restarted(store, trio, [TASKS[0]])
    live, untouched = trio(order), trio(order)
    await uninterrupted(live, ["something else"])
    before = await saved(live)
    with pytest.raises(midturn.Drifted) as caught:
        await store.load("case", live)
    assert named <= names_in(caught.value)
    assert await saved(live) == before
    assert await uninterrupted(live, [TASKS[2]]) == (await uninterrupted(untouched, ["something else", TASKS[2]]))[1:]


async def test_another_participant_of_an_inner_team_is_refused_with_its_place(store):
    await restarted(store, lambda: nested("ann bob cid"), [TASKS[0]])
    with pytest.raises(midturn.Drifted) as caught:
        await store.session("case", lambda: nested("ann bob")).run(task=TASKS[1])
    assert names_in(caught.value) == {"cid"}
    assert any("inner" in path for path, _ in caught.value.differences)


def selecting(model, **options):
    agents = [assistant(name) for name in ("ann", "bob", "cid")]
    return SelectorGroupChat(agents, model, max_turns=2, allow_repeated_speaker=True, **options)


CONTEXTS = {
    "its own": lambda: None,
    "with initial messages": lambda: UnboundedChatCompletionContext([UserMessage(content="be fair", source="boss")]),
    "a window": lambda: BufferedChatCompletionContext(3, [UserMessage(content="be fair", source="boss")]),
}
contexts = pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)


async def shown(model, live, tasks):
    """Return what a selector's model is shown in the turns of a live team."""
    model.seen.clear()
    await uninterrupted(live, tasks)
    return [seen[0].content for seen in model.seen]


@pytest.mark.parametrize("context", list(CONTEXTS.values())[:2], ids=list(CONTEXTS)[:2])
async def test_a_plain_selector_is_shown_everything_again_when_it_is_loaded_twice(context):
    model = Scripted(select)
    live = selecting(model, model_context=context())
    await live.run(task=TASKS[0])
    state = await saved(live)
    expected = await shown(model, live, [TASKS[1]])
    again = selecting(model, model_context=context())
    await again.load_state(state)
    await again.load_state(state)
    assert (await shown(model, again, [TASKS[1]]))[0].count(TASKS[0]) == 2 * expected[0].count(TASKS[0])


async def test_the_prompt_of_a_plain_selector_grows_with_each_load():
    model = Scripted(select)
    live = selecting(model)
    await live.run(task=TASKS[0])
    state = await saved(live)
    for _ in range(2):
        await live.load_state(state)
    assert (await shown(model, live, [TASKS[1]]))[0].count(TASKS[0]) == 3


@contexts
async def test_a_selector_is_shown_the_same_after_restarts(store, context):
    model = Scripted(select)
    expected = await shown(model, selecting(model, model_context=context()), TASKS)
    model.seen.clear()
    await restarted(store, lambda: selecting(model, model_context=context()), TASKS)
    assert [seen[0].content for seen in model.seen] == expected


@contexts
@pytest.mark.parametrize("fresh", [False, True], ids=["itself", "a fresh one"])
async def test_a_selector_is_shown_the_same_however_often_it_is_loaded_by_hand(store, context, fresh):
    model = Scripted(select)
    untouched = selecting(model, model_context=context())
    await untouched.run(task=TASKS[0])
    expected = await shown(model, untouched, TASKS[1:3])
    live = selecting(model, model_context=context())
    await live.run(task=TASKS[0])
    await store.save("case", live)
    if fresh:
        live = selecting(model, model_context=context())
    for _ in range(3):
        await store.load("case", live)
    assert await shown(model, live, TASKS[1:3]) == expected


@contexts
async def test_a_selector_is_shown_the_same_after_a_turn_that_failed(store, context):
    model = Scripted(select)
    expected = await shown(model, selecting(model, model_context=context()), TASKS[:3])
    model = Scripted(Outage(4, answer=select))
    case = store.session("case", selecting(model, model_context=context()))
    await case.run(task=TASKS[0])
    with pytest.raises(midturn.TurnFailed, match="503"):
        await case.run(task=TASKS[1])
    model.seen = model.seen[:3]  # without the one that failed; the one before it is recorded and not asked again
    await case.resume()
    await case.run(task=TASKS[2])
    assert [seen[0].content for seen in model.seen] == expected


async def note(context):
    await context.add_message(UserMessage(content="ann is ill", source="boss"))


async def test_what_was_added_to_the_context_of_a_plain_selector_is_lost():
    model, context = Scripted(select), UnboundedChatCompletionContext()
    live = selecting(model, model_context=context)
    await live.run(task=TASKS[0])
    await note(context)
    fresh = selecting(model)
    await fresh.load_state(await saved(live))
    assert "ann is ill" in (await shown(model, live, [TASKS[1]]))[0]
    assert "ann is ill" not in (await shown(model, fresh, [TASKS[1]]))[0]


async def test_what_was_added_to_the_context_of_a_selector_is_kept(store):
    model, context = Scripted(select), UnboundedChatCompletionContext()
    live = selecting(model, model_context=context)
    await live.run(task=TASKS[0])
    await note(context)
    await store.save("case", live)
    expected = await shown(model, live, TASKS[1:3])
    model.seen.clear()
    await restarted(store, lambda: selecting(model, model_context=UnboundedChatCompletionContext()), TASKS[1:3])
    assert [seen[0].content for seen in model.seen] == expected


class Offer(BaseModel):
    price: int
    why: str


def _offer(messages):
    return json.dumps({"price": len(messages), "why": remembered(messages)})


def bidding(model=Offer, answer=_offer, **options):
    bidder = AssistantAgent("bidder", Scripted(answer), output_content_type=model)
    return RoundRobinGroupChat([bidder, assistant("ann")], max_turns=3, **options)


def declared(model=Offer, answer=_offer):
    return bidding(model, answer, custom_message_types=[StructuredMessage[model]])


async def test_plain_autogen_has_no_structured_answers_in_a_team_that_does_not_declare_them():
    with pytest.raises((ValueError, RuntimeError), match="not registered"):
        await bidding().run(task=TASKS[0])


@pytest.mark.parametrize("build", [bidding, declared])
async def test_structured_answers_work_in_a_team_over_restarts(store, build):
    assert await restarted(store, build, TASKS) == await uninterrupted(declared(), TASKS)


async def test_structured_answers_work_in_an_inner_team(store):
    def build(inner=bidding):
        return RoundRobinGroupChat([inner(), assistant("lead")], max_turns=2, name="outer", **options[inner])

    options = {bidding: {}, declared: {"custom_message_types": [StructuredMessage[Offer]]}}
    assert await restarted(store, build, TASKS[:3]) == await uninterrupted(build(declared), TASKS[:3])


async def test_a_structured_answer_comes_back_as_the_type_it_was(store):
    await store.session("case", bidding).run(task=TASKS[0], key="first")
    again = await store.session("case", bidding).run(task=TASKS[0], key="first")
    assert isinstance(again.messages[1].content, Offer)
    assert again.checkpoint == 1


async def test_an_imported_state_with_structured_answers_continues(store):
    live = declared()
    await live.run(task=TASKS[0])
    await imported(store, await saved(live))
    assert await restarted(store, bidding, TASKS[1:3]) == await uninterrupted(live, TASKS[1:3])


class Invoice(BaseTextChatMessage):
    """A message type of one's own."""

    amount: int
    type: Literal["Invoice"] = "Invoice"


def accounting():
    return trio(custom_message_types=[Invoice])


async def test_messages_of_ones_own_types_come_back_after_restarts(store):
    march, may = (Invoice(content=month, source="user", amount=3) for month in ("March", "May"))
    tasks = [march, None, TASKS[1], [may]]
    said = await restarted(store, accounting, tasks)
    assert said == await uninterrupted(accounting(), tasks) == await reloaded(accounting, tasks)
    thread = (await store.session("case").at(2).state())["agent_states"]["RoundRobinGroupChatManager"]["message_thread"]
    assert (thread[0]["type"], thread[0]["amount"]) == ("Invoice", 3)


def _changed(fields, name="Offer"):
    return create_model(name, **dict.fromkeys(fields, (int | str, ...)))


MODELS = {
    "renamed": (_changed(["price", "why"], "Quote"), None),
    "a field added": (_changed(["price", "why", "until"]), "until"),
    "a field removed": (_changed(["price"]), "why"),
    "a field renamed": (_changed(["price", "reason"]), "reason"),
    "a type changed": (create_model("Offer", price=(int, ...), why=(int, ...)), "why"),
}


@pytest.mark.parametrize("kind", MODELS)
async def test_plain_autogen_does_not_come_back_with_another_model(kind):
    live, fresh = declared(), declared(MODELS[kind][0])
    await live.run(task=TASKS[0])
    state = await saved(live)
    if kind == "a field removed":
        await fresh.load_state(state)
        threads = [
            team["agent_states"]["RoundRobinGroupChatManager"]["message_thread"] for team in (state, await saved(fresh))
        ]
        assert [sorted(thread[1]["content"]) for thread in threads] == [["price", "why"], ["price"]]
    else:
        with pytest.raises(ValueError):
            await fresh.load_state(state)


@pytest.mark.parametrize("build", [bidding, declared])
@pytest.mark.parametrize("kind", MODELS)
async def test_another_model_is_refused_with_the_message_type_and_the_field(store, kind, build):
    model, field = MODELS[kind]
    await restarted(store, build, [TASKS[0]])
    live, before = build(model), await saved(build(model))
    with pytest.raises(midturn.Drifted) as in_a_session:
        await store.session("case", lambda: build(model)).run(task=TASKS[1])
    with pytest.raises(midturn.Drifted) as by_hand:
        await store.load("case", live)
    assert await saved(live) == before
    for error in (in_a_session.value, by_hand.value):
        assert "StructuredMessage[Offer]" in str(error)
        assert field is None or field in str(error)
        assert error.differences
    assert await restarted(store, build, [TASKS[1]]) == (await uninterrupted(declared(), TASKS[:2]))[1:]


async def test_a_message_type_that_is_not_declared_any_more_is_refused_by_name(store):
    await restarted(store, accounting, [Invoice(content="March", source="user", amount=3)])
    with pytest.raises(midturn.Drifted, match="Invoice"):
        await store.session("case", trio).run(task=TASKS[1])
