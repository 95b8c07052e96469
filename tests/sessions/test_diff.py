"""``case.diff``: what differs between two checkpoints, and that nothing is left out."""

import json

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core.memory import ListMemory, MemoryContent
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import KINDS, TASKS
from scripted import Scripted, remembered

import midturn
from midturn.autogen.adapter import AutoGen
from midturn.framework import Conversation, Outline, Utterance
from midturn.history import diff
from midturn.history.diff import conversation_changes, turn_changes, value_changes
from midturn.history.json_view import diff_json
from midturn.record.head import Kind
from midturn.stores.wrapper import StoreWrapper

# Whatever the framework: generated outlines

numbers = st.integers(0, 3)
messages = st.builds(
    lambda id_, who, text, more: Utterance(
        message={"id": id_, "source": who, "content": text, "more": more},
        id=id_,
        kind="TextMessage",
        who=who,
        text=text,
    ),
    st.none() | numbers.map(str),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from(
        ["", "The customer prefers email.", "The customer prefers SMS.", "One\ntwo\nthree\nfour\nfive", "7"]
    ),
    numbers,
)
conversations = st.dictionaries(
    st.sampled_from([("a",), ("b", "c")]),
    st.lists(messages, max_size=7).map(lambda found: Conversation(agent="ann", kind="context", messages=found)),
)
values = st.dictionaries(
    st.tuples(st.sampled_from(["x", "y"])), st.none() | st.booleans() | numbers | st.just(1.0) | st.lists(numbers)
)
outlines = st.builds(
    Outline,
    conversations=conversations,
    speakers=st.dictionaries(st.just(""), st.tuples(st.just("ann"))),
    values=values,
)


def exact(value):
    return json.dumps(value, sort_keys=True)


def plain(outline, place):
    found = outline.conversations.get(place)
    return None if found is None else [each.message for each in found.messages]


@given(outlines, outlines)
def test_the_changes_lead_from_one_state_to_the_other(before, after):
    changed = [*conversation_changes(before, after)]
    for place in {**before.conversations, **after.conversations}:
        old, new = plain(before, place), plain(after, place)
        found = [each for each in changed if apply(each, old) == (new or [])]
        assert found or exact(old) == exact(new)
    differing = [place for place in {**before.values, **after.values} if was(before, place) != was(after, place)]
    assert len([*value_changes(before.values, after.values)]) == len(differing)
    assert bool([*turn_changes(before, after)]) == (before.speakers != after.speakers)


def apply(change, old):
    try:
        return change.apply(old or [])
    except midturn.InvalidArgument:
        return None


def was(outline, place):
    return exact(outline.values[place]) if place in outline.values else None


@given(outlines)
def test_a_state_does_not_differ_from_itself(one):
    assert [*conversation_changes(one, one)] == [*turn_changes(one, one)] == []
    assert [*value_changes(one.values, one.values)] == []


@given(st.lists(messages, max_size=9), st.lists(messages, max_size=9))
def test_each_message_is_named_once_and_the_changed_ones_are_the_same_messages(before, after):
    place, kind = ("a",), {"agent": "ann", "kind": "context"}
    one, other = (
        Outline(conversations={place: Conversation(messages=each, **kind)}, speakers={}, values={})
        for each in (before, after)
    )
    for change in conversation_changes(one, other):
        gone = [each.before_at for each in change.messages if each.before_at is not None]
        come = [each.after_at for each in change.messages if each.after_at is not None]
        assert len({*gone}) == len(gone)
        assert come == sorted({*come})
        for each in change.messages:
            assert (each.before_at is None, each.after_at is None) == (
                each.change == "added",
                each.change == "removed",
            )
            if each.change == "changed":
                assert before[each.before_at].id == after[each.after_at].id
                assert any(text[0] in "+-" for text in each.text)
        assert change.apply([each.message for each in before]) == [each.message for each in after]


def test_changes_are_not_applied_to_other_messages():
    place = ("a",)

    def outline(*texts):
        said = [Utterance(message={"content": text}, id=None, kind="", who="", text=text) for text in texts]
        return Outline(
            conversations={place: Conversation(agent="", kind="context", messages=said)}, speakers={}, values={}
        )

    [change] = conversation_changes(outline("one", "two"), outline("one"))
    for wrong in ([], [{"content": "one"}], [{"content": "one"}, {"content": "2"}]):
        with pytest.raises(midturn.InvalidArgument):
            change.apply(wrong)


def test_long_conversations_that_differ_wholly_are_compared_in_bounded_time(monkeypatch):
    compared = []
    is_alike = diff._is_alike
    monkeypatch.setattr(diff, "_is_alike", lambda *pair: compared.append(pair) or is_alike(*pair))

    def outline(word):
        texts = [text for n in range(2_000) for text in (f"{word} {n} {word * (n % 7)}", "Noted.")]
        said = [Utterance(message={"content": text}, id=None, kind="", who="", text=text) for text in texts]
        return Outline(
            conversations={("a",): Conversation(agent="", kind="context", messages=said)}, speakers={}, values={}
        )

    before, after = outline("refund"), outline("delivery")
    [change] = conversation_changes(before, after)
    assert len(compared) <= diff.COMPARISONS
    assert change.apply(plain(before, ("a",))) == plain(after, ("a",))


# With AutoGen


def said(tree):
    return {
        (found.agent, found.kind): [each.message for each in found.messages]
        for found in AutoGen().outline(tree).conversations.values()
    }


def rebuilt(outline):
    """The tree that an outline was taken from."""
    tree = {}
    for place, value in (
        *outline.values.items(),
        *((place, [each.message for each in found.messages]) for place, found in outline.conversations.items()),
    ):
        at = tree
        for name in place[:-1]:
            at = at.setdefault(name, {})
        at[place[-1]] = value
    return tree


@pytest.mark.parametrize("kind", KINDS)
async def test_every_checkpoint_of_every_kind_differs_by_what_happened(memory, kind):
    case = memory.session("case", KINDS[kind])
    for task in TASKS[:3]:
        await case.run(task=task)
    trees = [await case.at(number).tree() for number in (1, 2, 3)]
    for before in (1, 2, 3):
        for after in (1, 2, 3):
            found = await case.diff(before, after)
            assert bool(found) == (before != after)
            old, new = said(trees[before - 1]), said(trees[after - 1])
            changed = {(each.agent, each.kind): each for each in found.conversations}
            for place in {**old, **new}:
                messages = old.get(place, [])
                assert (changed[place].apply(messages) if place in changed else messages) == new.get(place, [])
            json.dumps(diff_json(found))
    for tree in trees:
        whole = rebuilt(AutoGen().outline(tree))
        assert whole == {name: value for name, value in tree.items() if name != "kept"}


@settings(max_examples=5)
@given(st.data())
async def test_a_fork_and_its_origin_differ_by_what_each_said_since(data):
    tasks = st.lists(st.sampled_from(TASKS), min_size=1, max_size=3)
    before, here, there = (data.draw(tasks) for _ in range(3))
    async with midturn.open("memory://") as store:
        case = store.session("case", pair)
        for task in before:
            await case.run(task=task)
        fork = await case.fork("fork", at=len(before))
        assert not (await case.diff(len(before), fork.at(1))).conversations
        for task in here:
            await case.run(task=task)
        for task in there:
            await fork.run(task=task)
        one, other = case.at(len(before) + len(here)), fork.at(1 + len(there))
        found = await case.diff(one, other)
        assert (str(found.before), str(found.after)) == (f"case@{one.number}", f"fork@{other.number}")
        old, new = said(await one.tree()), said(await other.tree())
        for each in found.conversations:
            assert each.apply(old[each.agent, each.kind]) == new[each.agent, each.kind]
        assert {(each.agent, each.kind) for each in found.conversations} == {
            place for place in old if old[place] != new[place]
        }


def desk(prompt="Be brief.", tools=()):
    memory = ListMemory("notes")
    return AssistantAgent("desk", Scripted(remembered), system_message=prompt, tools=list(tools), memory=[memory])


def refund(order: str) -> str:
    """Refund an order."""
    return order


async def test_prompts_and_tools_are_part_of_it(memory):
    await memory.session("case", desk).run(task="Hello")
    case = memory.session("case", lambda: desk("Be kind.\nBe brief.", [refund]), on_drift="ignore")
    await case.run(task="Refund A1")
    found = await case.diff(1, 2)
    assert {(each.agent, each.what) for each in found.agents} == {("desk", "prompt"), ("desk", "tool")}
    [prompt] = [each for each in found.agents if each.what == "prompt"]
    assert any(text.startswith("+") and "Be kind." in text for text in prompt.lines)


async def test_memories_are_part_of_it(memory):
    agent = desk()
    case = memory.session("case", agent)
    await case.run(task="Hello")
    await agent._memory[0].add(MemoryContent(content="prefers email", mime_type="text/plain"))
    await case.run(task="Hello again")
    found = await case.diff(1, 2)
    [value] = [each for each in found.values if "prefers email" in str(each.after)]
    assert value.path.startswith("$.beside.")
    assert any(text.startswith("+") and "prefers email" in text for text in value.text)
    [told] = [each for each in found.conversations[0].messages if "prefers email" in str(each.after)]
    assert told.who == "system"


def pair(cls=RoundRobinGroupChat, **options):
    ann, bob = (AssistantAgent(name, Scripted(remembered), **options) for name in ("ann", "bob"))
    return cls([ann, bob], termination_condition=MaxMessageTermination(2))


async def test_whose_turn_it_is_is_part_of_it(memory):
    case = memory.session("case", pair)
    for task in ("one", "two", "three"):
        await case.run(task=task)
    [turn] = (await case.diff(1, 2)).turns
    assert (turn.team, turn.before, turn.after) == ("", ("bob",), ("ann",))
    assert (await case.diff(1, 3)).turns == ()
    [thread] = [each for each in (await case.diff(1, 2)).conversations if each.kind == "thread"]
    assert [(each.change, each.who, each.after_at) for each in thread.messages] == [
        ("added", "user", 2),
        ("added", "bob", 3),
    ]


async def test_a_swarm_says_whose_turn_it_is(memory):
    case = memory.session("case", lambda: pair(Swarm))
    await case.run(task="one")
    assert AutoGen().outline(await case.at(1).tree()).speakers == {"": ("ann",)}


async def test_a_message_that_changed_has_a_text_diff(memory):
    case = memory.session("case", pair)
    await case.run(task="The customer prefers email.\nAlways.")
    tree = json.loads(json.dumps(await case.at(1).tree()).replace("prefers email", "prefers SMS"))
    other = memory.session("other", pair)
    await other.save(tree)
    found = await case.diff(1, other.at(1))
    assert {(each.agent, each.kind) for each in found.conversations} == {
        ("", "thread"), ("ann", "context"), ("bob", "buffer"),
    }  # fmt: skip
    for conversation in found.conversations:
        [change] = [each for each in conversation.messages if each.who == "user"]
        assert change.change == "changed"
        assert change.text == ("-The customer prefers email.", "+The customer prefers SMS.", " Always.")
    assert found.turns == found.agents == ()


class Counted(StoreWrapper):
    """Counts the rows that are read, by kind."""

    def __init__(self, inner):
        super().__init__(inner)
        self.read = dict.fromkeys(Kind, 0)

    async def rows(self, session, kind, **span):
        found = await super().rows(session, kind, **span)
        self.read[kind] += len(found)
        return found


async def test_it_reads_two_checkpoints_and_not_the_history(memory):
    case = memory.session("case", pair)
    for number in range(12):
        await case.run(task=f"task {number}", key=str(number))
    counting = Counted(memory.store)
    async with midturn.open(store=counting) as store:
        assert await store.session("case").diff(3, 4)
        read, counting.read = counting.read, dict.fromkeys(Kind, 0)
        await store.session("case").at(4).read()
        assert {kind for kind, count in read.items() if count} == {Kind.BODY, Kind.CHECKPOINT}
        assert read[Kind.CHECKPOINT] == 3 + 4
        assert read[Kind.BODY] == counting.read[Kind.BODY], "what both checkpoints have is read once"


@pytest.mark.parametrize("wrong", [0, -1, 3, 10**6])
async def test_a_checkpoint_that_is_not_there_is_not_found(memory, wrong):
    case = memory.session("case", pair)
    for task in ("one", "two"):
        await case.run(task=task)
    with pytest.raises(midturn.NotFound):
        await case.diff(1, wrong)
    with pytest.raises(midturn.NotFound):
        await case.diff(case.at(wrong), memory.session("case").at(1))
    with pytest.raises(midturn.NotFound):
        await memory.session("nobody").diff(1, 2)


@pytest.mark.parametrize("wrong", ["1", None, 1.0, True, "case@1"])
async def test_what_is_no_checkpoint_is_wrong(memory, wrong):
    with pytest.raises(midturn.InvalidArgument):
        await memory.session("case", pair).diff(1, wrong)
