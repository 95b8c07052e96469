"""A capture equals the result of ``save_state()``, and dumps no old message again."""

import asyncio
import json

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage
from autogen_agentchat.teams import MagenticOneGroupChat, RoundRobinGroupChat
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import AssistantMessage, UserMessage
from kinds import KINDS, TASKS, assistant, round_robin
from scripted import Scripted

from midturn.autogen.adapter import AutoGen
from midturn.record.bodies import Bodies
from midturn.record.packing import Archive, Grown, as_json, restore


def copied(value):
    return json.loads(json.dumps(value))


async def saved(live):
    return copied(await live.save_state())


async def captured(live):
    return copied(as_json(await AutoGen().capture(live)))["state"]


def grown(tree):
    """Count the live lists in a captured state."""
    if isinstance(tree, Grown):
        return 1
    return sum(map(grown, tree.values())) if isinstance(tree, dict) else 0


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_captured_is_the_saved_state_after_every_turn(kind):
    live = KINDS[kind]()
    assert await captured(live) == await saved(live)
    for task in TASKS:
        await live.run(task=task)
        assert await captured(live) == await saved(live)


@pytest.mark.parametrize("kind", KINDS)
async def test_capturing_leaves_the_live_object_as_it_was(kind):
    live, untouched = KINDS[kind](), KINDS[kind]()
    for task in TASKS[:3]:
        result, expected = await live.run(task=task), await untouched.run(task=task)
        assert [message.to_text() for message in result.messages] == [
            message.to_text() for message in expected.messages
        ]
        before = await saved(live)
        await AutoGen().capture(live)
        assert await saved(live) == before


@pytest.mark.parametrize("kind", KINDS)
async def test_the_growing_lists_of_every_kind_are_live(kind):
    live = KINDS[kind]()
    await live.run(task=TASKS[0])
    assert grown(await AutoGen().capture(live)) > 0


class Packing:
    """Packs one captured state after the other and reads each back from all that was packed."""

    def __init__(self):
        self._archive, self._bodies, self._logs = Archive(), [], []

    def __call__(self, tree):
        packed = self._archive.pack(tree)
        self._archive.keep(packed)
        self._bodies += self._archive.new_bodies()
        self._logs.append(packed.appends)
        bodies = Bodies()
        bodies.extend(self._bodies)
        return restore(
            skeleton=packed.skeleton,
            spans=packed.spans,
            bodies=bodies,
            logs=self._logs,
            archive=Archive(),
        )


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_captured_and_packed_turn_after_turn_comes_back_exactly(kind):
    live, packing = KINDS[kind](), Packing()
    for task in TASKS:
        await live.run(task=task)
        assert packing(await AutoGen().capture(live))["state"] == await saved(live)


@pytest.mark.parametrize(
    "context",
    [
        UnboundedChatCompletionContext,
        lambda: UnboundedChatCompletionContext([UserMessage(content="from before", source="user")]),
        lambda: BufferedChatCompletionContext(buffer_size=2),
        lambda: HeadAndTailChatCompletionContext(head_size=1, tail_size=2),
        lambda: TokenLimitedChatCompletionContext(Scripted(), token_limit=5),
    ],
)
async def test_every_context_of_autogen_is_captured_as_it_is_saved(context):
    live = assistant(model_context=context())
    for task in TASKS:
        await live.run(task=task)
        assert await captured(live) == await saved(live)
    assert grown(await AutoGen().capture(live)) == 1


class Counting(BaseChatAgent):
    """An agent with a state of its own, which hands out its live list."""

    def __init__(self, name="counting"):
        super().__init__(name, "counts")
        self.seen = []

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        self.seen += [{"said": message.to_text()} for message in messages]
        return Response(chat_message=TextMessage(content=f"{len(self.seen)}", source=self.name))

    async def on_reset(self, cancellation_token):
        self.seen.clear()

    async def save_state(self):
        return {"type": "Counting", "seen": self.seen, "pair": (1, 2)}

    async def load_state(self, state):
        self.seen = list(state["seen"])


@pytest.mark.parametrize(
    "build", [Counting, lambda: RoundRobinGroupChat([Counting(), assistant("ann")], max_turns=2)], ids=["alone", "team"]
)
async def test_an_agent_class_of_ones_own_is_captured_as_it_saves_itself(build):
    live = build()
    for task in TASKS[:3]:
        await live.run(task=task)
        assert await captured(live) == await saved(live)


async def test_what_was_captured_does_not_change_with_an_agent_that_hands_out_its_live_list():
    live = Counting()
    await live.run(task="one")
    tree = await AutoGen().capture(live)
    before = copied(as_json(tree))
    await live.run(task="two")
    assert copied(as_json(tree)) == before


class Summing(AssistantAgent):
    """Saves something that it works out from its context."""

    async def save_state(self):
        messages = await self.model_context.get_messages()
        return {**await super().save_state(), "summary": [message.content for message in messages]}


class Renamed(AssistantAgent):
    """Saves its context under another name."""

    async def save_state(self):
        return {"mine": await super().save_state()}


class Own(AssistantAgent):
    """Saves something else altogether."""

    async def save_state(self):
        return {"count": len(await self.model_context.get_messages())}


@pytest.mark.parametrize("cls", [Summing, Renamed, Own])
@pytest.mark.parametrize("in_team", [False, True])
async def test_an_assistant_that_overrides_save_state_is_captured_as_it_saves_itself(cls, in_team):
    agent = cls("ann", Scripted())
    live = RoundRobinGroupChat([agent, assistant("bob")], max_turns=2) if in_team else agent
    for task in TASKS[:3]:
        await live.run(task=task)
        assert await captured(live) == await saved(live)


class SummingTeam(RoundRobinGroupChat):
    """A team that saves how much its members remember."""

    async def save_state(self):
        found = dict(await super().save_state())
        states = found["agent_states"]
        return found | {"total": sum(len(value.get("message_thread", [])) for value in states.values())}


async def test_a_team_that_overrides_save_state_is_captured_as_it_saves_itself():
    live = SummingTeam([assistant("ann"), assistant("bob")], max_turns=2)
    for task in TASKS[:3]:
        await live.run(task=task)
        assert await captured(live) == await saved(live)


class Shortening(UnboundedChatCompletionContext):
    """Changes the messages that it holds, in place."""

    async def add_message(self, message):
        for held in self._messages:
            held.content = str(held.content)[:5]
        await super().add_message(message)


@pytest.mark.parametrize("in_team", [False, True])
async def test_a_context_that_changes_its_messages_in_place_is_stored_as_it_is_each_time(in_team):
    agent = assistant("ann", model_context=Shortening())
    live = RoundRobinGroupChat([agent], max_turns=1) if in_team else agent
    packing = Packing()
    for task in TASKS[:4]:
        await live.run(task=task)
        assert await captured(live) == await saved(live)
        assert packing(await AutoGen().capture(live))["state"] == await saved(live)


async def test_two_agents_that_share_a_context_are_captured_as_they_are_saved():
    shared = UnboundedChatCompletionContext()
    agents = [assistant("ann", model_context=shared), assistant("bob", model_context=shared)]
    live = RoundRobinGroupChat(agents, max_turns=2)
    for task in TASKS[:3]:
        await live.run(task=task)
        assert await captured(live) == await saved(live)
    assert len(await shared.get_messages()) > 3


class Sharing(Counting):
    """An agent of one's own that keeps its part of the state in another agent's context."""

    def __init__(self, name, context):
        super().__init__(name)
        self.context = context

    async def save_state(self):
        return {"context": await self.context.save_state()}


async def test_an_agent_of_ones_own_that_saves_the_context_of_an_assistant_is_captured_as_it_saves_itself():
    shared = UnboundedChatCompletionContext()
    live = RoundRobinGroupChat([assistant("ann", model_context=shared), Sharing("bob", shared)], max_turns=2)
    for task in TASKS[:2]:
        await live.run(task=task)
        assert await captured(live) == await saved(live)


async def test_an_orchestrated_team_is_captured_as_it_is_saved():
    ledger = {
        name: {"answer": answer, "reason": ""}
        for name, answer in {
            "is_request_satisfied": True,
            "is_in_loop": False,
            "is_progress_being_made": True,
            "next_speaker": "ann",
            "instruction_or_question": "go on",
        }.items()
    }
    live = MagenticOneGroupChat([assistant("ann")], Scripted(lambda messages: json.dumps(ledger)))
    for task in TASKS[:2]:
        await live.run(task=task)
        assert await captured(live) == await saved(live)


class Failing(AssistantAgent):
    """Cannot be saved when it is told so."""

    error = None

    async def save_state(self):
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return await super().save_state()


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError("stop")], ids=["error", "cancelled"])
async def test_the_lists_are_put_back_when_saving_fails_in_the_middle(error):
    failing = Failing("mid", Scripted())
    inner = RoundRobinGroupChat([assistant("ann"), failing, assistant("bob")], max_turns=3, name="inner")
    live = RoundRobinGroupChat([assistant("lead"), inner], max_turns=2, name="outer")
    await live.run(task=TASKS[0])
    before = await saved(live)
    failing.error = error
    with pytest.raises(type(error)):
        await AutoGen().capture(live)
    failing.error = None
    assert await saved(live) == before
    assert await captured(live) == before
    await live.run(task=TASKS[1])
    assert await captured(live) == await saved(live)


@pytest.fixture
def dumps(monkeypatch):
    """Every dump of a message from now on, by the name of its type."""
    seen = []

    def spy(cls, name):
        original = getattr(cls, name)

        def dump(self, *args, **options):
            seen.append(type(self).__name__)
            return original(self, *args, **options)

        monkeypatch.setattr(cls, name, dump)

    for cls in (UserMessage, AssistantMessage):
        spy(cls, "model_dump")
    for cls in (BaseChatMessage, BaseAgentEvent, TextMessage):
        if "dump" in vars(cls):
            spy(cls, "dump")
    return seen


@pytest.mark.parametrize("build", [assistant, round_robin], ids=["assistant", "round_robin"])
async def test_a_message_that_was_dumped_is_not_dumped_again(build, dumps):
    live, archive = build(), Archive()
    counts = []
    for turn in range(40):
        await live.run(task=f"turn {turn}")
        tree = await AutoGen().capture(live)
        dumps.clear()
        archive.keep(archive.pack(tree))
        archive.new_bodies()
        counts.append(len(dumps))
    assert counts[39] == counts[4] > 0
    # A team of three with two speakers a turn comes round every third turn.
    assert [sum(counts[turn : turn + 3]) for turn in (3, 18, 36)] == [sum(counts[3:6])] * 3


@pytest.mark.parametrize("build", [assistant, round_robin], ids=["assistant", "round_robin"])
async def test_capturing_itself_dumps_no_message(build, dumps):
    live = build()
    await live.run(task="first")
    dumps.clear()
    await AutoGen().capture(live)
    assert dumps == []
