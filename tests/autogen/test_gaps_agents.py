"""Agents of every class: what AutoGen's save_state() drops of them, midturn keeps, or says that it cannot."""

import warnings
from types import SimpleNamespace

import pytest
from autogen_agentchat.agents import (
    ApprovalResponse,
    AssistantAgent,
    CodeExecutorAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
    UserProxyAgent,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.memory import ListMemory
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from gap_parts import content
from gaps import RESTART, Custom, alone_and_in_a_team, in_team, kept, last, reloaded, uninterrupted
from kinds import assistant
from scripted import Scripted, digest, remembered

import midturn

STEPS = ["The customer prefers email.", "Also SMS.", RESTART, "And now?", "Sum it up.", RESTART, "Thank you."]


class UntoldDesk:
    """Asked for input, it says how often it was asked."""

    def __init__(self):
        self.asked = 0

    def __call__(self, prompt):
        self.asked += 1
        return f"answer {self.asked}"


class Desk(UntoldDesk):
    async def save_state(self):
        return {"asked": self.asked}

    async def load_state(self, state):
        self.asked = state["asked"]


class Shell(CodeExecutor):
    """Executes nothing and says how much it got."""

    async def execute_code_blocks(self, code_blocks, cancellation_token):
        return CodeResult(exit_code=0, output=f"ran {[block.code for block in code_blocks]}")

    async def start(self):
        pass

    async def stop(self):
        pass

    async def restart(self):
        pass


def _code(messages):
    if messages[-1].source == "coder":
        return remembered(messages)
    return f"```python\nprint('{digest(messages)}')\n```"


def user_proxy():
    return UserProxyAgent("human", input_func=Desk())


def code_executor():
    return CodeExecutorAgent(
        "coder",
        Shell(),
        model_client=Scripted(_code),
        approval_func=lambda request: ApprovalResponse(approved=True, reason="harmless"),
    )


def message_filter(wrapped=None):
    only_the_user = MessageFilterConfig(per_source=[PerSourceFilter(source="user")])
    return MessageFilterAgent("filter", wrapped or assistant("wrapped"), only_the_user)


def filtered_filter():
    return message_filter(message_filter())


def filtered_user_proxy():
    return message_filter(user_proxy())


def society():
    inner = RoundRobinGroupChat([assistant("ann"), assistant("bob")], max_turns=2, name="inner")
    return SocietyOfMindAgent("society", inner, Scripted())


class Delegating(Custom):
    """Holds an assistant that does its work."""

    def __init__(self):
        super().__init__("delegating")
        self.helper = assistant("helper")

    async def reply(self, texts):
        return (await self.helper.run(task=" ".join(texts))).messages[-1].content


class Convening(Custom):
    """Holds a team that does its work."""

    def __init__(self):
        super().__init__("convening")
        self.group = RoundRobinGroupChat([assistant("ann"), assistant("bob")], max_turns=1)

    async def reply(self, texts):
        return (await self.group.run(task=" ".join(texts))).messages[-1].content


class Recalling(Custom):
    """Holds a model context."""

    def __init__(self):
        super().__init__("recalling")
        self.context = UnboundedChatCompletionContext()

    async def reply(self, texts):
        for text in texts:
            await self.context.add_message(UserMessage(content=text, source="somebody"))
        return remembered(await self.context.get_messages())


class Memorising(Custom):
    """Holds a memory."""

    def __init__(self):
        super().__init__("memorising")
        self.notes = ListMemory()

    async def reply(self, texts):
        for text in texts:
            await self.notes.add(content(text))
        return f"{[note.content for note in self.notes.content]}"


LOST = alone_and_in_a_team(
    {
        build.__name__: build
        for build in (
            user_proxy,
            code_executor,
            message_filter,
            filtered_filter,
            filtered_user_proxy,
            society,
            Delegating,
            Convening,
            Recalling,
            Memorising,
        )
    }
)


@pytest.mark.parametrize("build", LOST)
async def test_plain_autogen_loses_the_state_of_an_agent(build):
    live, restarted = await uninterrupted(LOST[build], *STEPS), await reloaded(LOST[build], *STEPS)
    assert restarted[:2] == live[:2]
    assert restarted[2] != live[2]


@pytest.mark.parametrize("build", LOST)
async def test_midturn_keeps_the_state_of_an_agent(build):
    assert await kept(LOST[build], *STEPS) == await uninterrupted(LOST[build], *STEPS)


async def test_plain_autogen_loses_how_often_a_human_was_asked():
    assert last(await uninterrupted(user_proxy, *STEPS)) == "answer 5"
    assert last(await reloaded(user_proxy, *STEPS)) == "answer 1"


async def test_plain_autogen_loses_what_a_filtered_agent_was_told():
    assert last(await uninterrupted(message_filter, *STEPS)).startswith("10 messages")
    assert last(await reloaded(message_filter, *STEPS)).startswith("2 messages")


class Told(Custom):
    """Saves its state itself."""

    def __init__(self):
        super().__init__("told")
        self.count = 0

    async def reply(self, texts):
        self.count += 1
        return f"turn {self.count}"

    async def save_state(self):
        return {"count": self.count}

    async def load_state(self, state):
        self.count = state["count"]


class Learning(AssistantAgent):
    """An assistant that saves what it has more than others."""

    def __init__(self):
        super().__init__("learning", Scripted())
        self.turns = 0

    async def on_messages_stream(self, messages, cancellation_token):
        self.turns += 1
        async for item in super().on_messages_stream(messages, cancellation_token):
            yield item

    async def save_state(self):
        return {**await super().save_state(), "turns": self.turns}

    async def load_state(self, state):
        await super().load_state({key: value for key, value in state.items() if key != "turns"})
        self.turns = state["turns"]


class Responses:
    """The part of OpenAI's client that OpenAIAgent uses; ids and texts come from the request."""

    def __init__(self):
        self.responses = self

    async def create(self, **options):
        sent = digest([UserMessage(content=f"{sorted(options.items())}", source="sent")])
        return SimpleNamespace(id=f"response-{sent}", output_text=f"{len(options['input'])} messages, {sent}")


def openai():
    agents = pytest.importorskip("autogen_ext.agents.openai")
    return agents.OpenAIAgent("openai", "answers", Responses(), "some-model", "Answer.")


SAVED = alone_and_in_a_team({build.__name__: build for build in (Told, Learning, openai)})


@pytest.mark.parametrize("build", SAVED)
async def test_what_an_agent_saves_itself_is_kept_by_plain_autogen_and_by_midturn(build):
    live = await uninterrupted(SAVED[build], *STEPS)
    assert await reloaded(SAVED[build], *STEPS) == live
    assert await kept(SAVED[build], *STEPS) == live


async def test_midturn_keeps_the_response_id_of_an_openai_agent():
    openai()
    async with midturn.open("memory://") as store:
        await store.session("case", openai).run(task="Hello.")
        state = await store.session("case").at(1).state()
        fresh = openai()
        await store.load("case", fresh)
    assert state["response_id"].startswith("response-")
    assert [message["role"] for message in state["history"]] == ["user", "assistant"]
    assert await fresh.save_state() == state


async def warned(build, *steps):
    """Return a session's warnings about parts that it cannot keep."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said = await kept(build, *steps)
    assert {warning.category for warning in caught} <= {midturn.NotKept}
    return said, [str(warning.message) for warning in caught]


async def test_midturn_warns_once_of_an_agent_that_changed_and_cannot_be_kept():
    class Tally(Custom):
        def __init__(self):
            super().__init__("tally")
            self.count = 0
            self.fixed = 7

        async def reply(self, texts):
            self.count += 1
            return f"turn {self.count}"

    said, [message] = await warned(Tally, *STEPS)
    assert said[:2] == (await uninterrupted(Tally, *STEPS))[:2]
    assert "Tally" in message
    assert "count" in message
    assert "fixed" not in message
    assert await warned(in_team(Tally), *STEPS) == (await reloaded(in_team(Tally), *STEPS), [])


async def test_midturn_warns_of_a_list_that_an_agent_changed_in_place():
    class Listing(Custom):
        def __init__(self):
            super().__init__("listing")
            self.heard = []

        async def reply(self, texts):
            self.heard += texts
            return f"{len(self.heard)}"

    _, [message] = await warned(Listing, *STEPS)
    assert "Listing" in message
    assert "heard" in message


async def test_midturn_warns_of_each_class_once():
    class First(Custom):
        def __init__(self):
            super().__init__("first")
            self.turns = 0

        async def reply(self, texts):
            self.turns += 1
            return "first"

    class Second(First):
        pass

    def build():
        return RoundRobinGroupChat([First(), message_filter(Second())], max_turns=2)

    _, messages = await warned(build, *STEPS)
    assert len(messages) == 2
    assert "First" in messages[0] + messages[1]
    assert "Second" in messages[0] + messages[1]


async def test_midturn_warns_of_an_attribute_that_a_kind_of_assistant_has_more():
    class Counting(Learning):
        save_state = AssistantAgent.save_state
        load_state = AssistantAgent.load_state

    said, [message] = await warned(Counting, *STEPS)
    assert said == await uninterrupted(Counting, *STEPS)
    assert "Counting" in message
    assert "turns" in message
    assert "_model_context" not in message


async def test_midturn_warns_only_of_what_it_does_not_keep():
    class Busy(Recalling):
        def __init__(self):
            super().__init__()
            self.replies = 0

        async def reply(self, texts):
            self.replies += 1
            return await super().reply(texts)

    said, [message] = await warned(Busy, *STEPS)
    assert said == await uninterrupted(Busy, *STEPS)
    assert "Busy" in message
    assert "replies" in message
    assert "context" not in message


async def test_midturn_warns_of_an_input_function_that_changed_and_cannot_be_kept():
    class Counter(UntoldDesk):
        pass

    _, [message] = await warned(lambda: UserProxyAgent("human", input_func=Counter()), *STEPS)
    assert "Counter" in message
    assert "asked" in message


async def test_midturn_does_not_warn_of_agents_that_did_not_change():
    class Echo(Custom):
        def __init__(self):
            super().__init__("echo")
            self.prefix = ["You said:"]

    class Plain(AssistantAgent):
        pass

    def build():
        return RoundRobinGroupChat([Echo(), Plain("plain", Scripted())], max_turns=2)

    assert await warned(build, *STEPS) == (await uninterrupted(build, *STEPS), [])


@pytest.mark.parametrize("build", [assistant, code_executor, message_filter, society])
async def test_midturn_does_not_warn_of_classes_of_autogen(build):
    assert (await warned(build, *STEPS))[1] == []
    assert (await warned(in_team(build), *STEPS))[1] == []
