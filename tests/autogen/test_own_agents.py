"""Users' own agents, contexts and services: whatever they have in them does no harm."""

import asyncio
import inspect
import json
import sys
from collections import deque
from dataclasses import dataclass
from types import ModuleType

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.memory import ListMemory, MemoryContent, MemoryMimeType
from autogen_core.model_context import ChatCompletionContextState, UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_core.tools import StaticWorkbench
from gap_parts import Cart
from gaps import RESTART, Custom, kept, on_request, uninterrupted
from kinds import assistant
from scripted import Scripted

import midturn
from midturn.autogen.parts.walk import walk
from midturn.record.head import Kind


@pytest.fixture
async def store():
    async with midturn.open("memory://") as found:
        yield found


def note(text):
    return MemoryContent(content=text, mime_type=MemoryMimeType.TEXT)


class Twins(Custom):
    def __init__(self):
        super().__init__("twins")
        self._notes, self.notes = ListMemory(), ListMemory()

    async def reply(self, texts):
        await self._notes.add(note(texts[-1]))
        return f"{len(self._notes.content)} {len(self.notes.content)}"


async def test_two_attributes_that_differ_in_an_underscore_are_two():
    assert await kept(Twins, "email", RESTART, "SMS") == await uninterrupted(Twins, "email", "SMS")


class Looking(AssistantAgent):
    """Looks at what it was given when it is loaded."""

    async def load_state(self, state):
        await super().load_state(state)
        self.found = len(await self.model_context.get_messages())


async def test_a_load_state_of_ones_own_sees_the_whole_state(store):
    built = []

    def build():
        built.append(Looking("looking", Scripted()))
        return built[-1]

    await store.session("case", build).run("email")
    await store.session("case", build).run("SMS")
    assert built[-1].found == 2


async def test_a_package_whose_name_begins_like_autogens_is_ones_own(store):
    module = ModuleType("autogen_shop")
    sys.modules["autogen_shop"] = module
    try:
        vars(module).update({"UntoldCart": Cart.__base__, "__name__": "autogen_shop"})
        exec(inspect.getsource(Cart), vars(module))
        cls = module.Cart
        assert cls.save_state.__module__ == "autogen_shop"
        steps = ["add tea", RESTART, "add cups"]

        def build():
            return assistant(answer=on_request("add"), tools=[cls().add])

        assert await kept(build, *steps) == await uninterrupted(build, *steps)
    finally:
        del sys.modules["autogen_shop"]


class Elsewhere(UnboundedChatCompletionContext):
    """Has its messages where nobody looks."""

    def __init__(self, messages):
        self._initial_messages, self.mine = None, messages

    async def add_message(self, message):
        self.mine.append(message)

    async def get_messages(self):
        return list(self.mine)

    async def save_state(self):
        return {"mine": [message.model_dump() for message in self.mine]}

    async def load_state(self, state):
        self.mine = ChatCompletionContextState.model_validate({"messages": state["mine"]}).messages


class Short(UnboundedChatCompletionContext):
    def __init__(self):
        super().__init__()
        self._messages = deque(maxlen=20)

    async def get_messages(self):
        return list(self._messages)

    async def save_state(self):
        return {"messages": [message.model_dump() for message in self._messages]}

    async def load_state(self, state):
        self._messages.extend(ChatCompletionContextState.model_validate(state).messages)


@pytest.mark.parametrize("context", [lambda: Elsewhere([]), Short])
async def test_a_context_that_has_its_messages_its_own_way_is_kept(context):
    def build():
        return assistant(model_context=context())

    assert await kept(build, "email", RESTART, "SMS") == await uninterrupted(build, "email", "SMS")


@dataclass
class Plain(Custom):
    """Equal to any other, and without a hash."""

    _description: str = "equal"
    _name: str = "equal"


async def test_agents_that_are_equal_are_two(store):
    await asyncio.gather(store.session("a", Plain()).run("one"), store.session("b", Plain()).run("two"))
    assert [info.turns async for info in store.sessions()] == [1, 1]


class Connection:
    @property
    def name(self):
        raise RuntimeError("not connected")


class Key:
    pass


class Hoarder(Custom):
    def __init__(self):
        super().__init__("hoarder")
        self.connections = [Connection()]
        self.by_key = {Key(): ListMemory("one"), Key(): ListMemory("two")}
        self.numbers = [float(i) for i in range(100_000)]


async def test_what_else_an_agent_has_does_no_harm(store):
    await store.session("case", Hoarder).run("one")
    assert set(await store.session("case").at(1).beside()) == {"by_key/#1", "by_key/#2"}
    await store.session("case", Hoarder).run("two")


class Counting(StaticWorkbench):
    def __init__(self):
        super().__init__([])
        self.listed = 0

    async def list_tools(self):
        self.listed += 1
        return await super().list_tools()


async def test_a_workbench_that_adds_to_autogens_and_does_not_say_so_is_told_of(store):
    with pytest.warns(midturn.NotKept, match=r"Counting.*listed"):
        await store.session("case", lambda: assistant(workbench=Counting())).run("one")


class Client:
    def __init__(self):
        self._connection = None

    async def look(self, what: str) -> str:
        """Look something up."""
        self._connection = self._connection or Connection()
        return "found"


async def test_a_service_that_connects_when_it_is_first_used_is_not_told_of(store):
    agent = assistant(answer=on_request("look"), tools=[Client().look])
    await store.session("case", agent).run("look it up")


def test_a_list_of_very_many_things_is_looked_at_in_part():
    class Many(list):
        seen = 0

        def __iter__(self):
            for item in super().__iter__():
                Many.seen += 1
                yield item

    agent = Custom()
    agent.vectors = Many([Many([0.5] * 50_000) for _ in range(20)])
    walk(agent)
    assert 0 < Many.seen < 5_000


class Helper:
    def __init__(self, client):
        self.client = client


class Helped(Custom):
    """Has a helper, which keeps the client that it was given in the first turn."""

    def __init__(self):
        super().__init__("helped")
        self.client, self.helper = Scripted(), None

    async def reply(self, texts):
        self.helper = self.helper or Helper(self.client)
        result = await self.helper.client.create([UserMessage(content=texts[-1], source="user")])
        return result.content


@pytest.mark.filterwarnings("ignore::midturn.NotKept")
async def test_a_helper_may_keep_the_client_that_it_was_given_in_another_turn(store):
    case = store.session("case", Helped())
    for task in ("email", "SMS", "post"):
        assert (await case.run(task)).messages[-1].content.startswith("1 messages")
    assert [json.loads(row.data)["path"] for row in await store.store.rows("case", Kind.CALL)] == ["client"] * 3


class Leaving(Helped):
    """Fails, and leaves a task that calls its client later."""

    def __init__(self):
        super().__init__()
        self.left, self.go = [], asyncio.Event()

    async def _later(self, client):
        await self.go.wait()
        await client.create([UserMessage(content="late", source="user")])

    async def reply(self, texts):
        if not self.left:
            self.left.append(asyncio.create_task(self._later(self.client)))
            raise RuntimeError("out of order")
        self.go.set()
        await asyncio.wait(self.left)
        return await super().reply(texts)


@pytest.mark.filterwarnings("ignore::midturn.NotKept")
async def test_what_a_failed_turn_has_left_running_does_not_call_in_the_name_of_the_next(store):
    agent = Leaving()
    case = store.session("case", agent)
    with pytest.raises(midturn.TurnFailed):
        await case.run("email")
    await case.run("SMS")
    assert agent.left[0].cancelled()
    assert [[message.content for message in seen] for seen in agent.client.seen] == [["SMS"]]
