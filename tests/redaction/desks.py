"""Agents and teams whose texts have card numbers in them, and functions that redact them."""

import re

from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, UserProxyAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.memory import ListMemory, MemoryContent
from autogen_core.models import CreateResult, RequestUsage

import midturn
from midturn.testing import ScriptedModel, ToolCall

CARD = re.compile(r"\d{4}-\d{4}-\d{4}-\d{4}")
HIDDEN = "[card]"


def card(number):
    """Return a card number that no other text of a test has."""
    return f"4929-{number:04}-7735-0021"


def redact(text, where):
    return CARD.sub(HIDDEN, text)


async def redact_later(text, where):
    return CARD.sub(HIDDEN, text)


class Killed(BaseException):
    """The process dies here."""


class Watching:
    """A function that remembers what it was given."""

    def __init__(self):
        self.given = []

    def __call__(self, text, where):
        self.given.append((text, where))
        return redact(text, where)

    def where(self, part):
        return {(where.kind, where.agent, where.tool) for text, where in self.given if part in text}


class Counting:
    """A function that never says the same twice, and changes what it has said itself."""

    def __init__(self):
        self.calls = 0

    def __call__(self, text, where):
        self.calls += 1
        return f"{CARD.sub(HIDDEN, text)}~{self.calls}" if where.kind in ("task", "model", "tool", "human") else text


async def look(order: str) -> str:
    """Look an order up."""
    return f"{order} was paid with {card(2)}"


def answer(content, thought=None):
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    return CreateResult(finish_reason="stop", content=content, usage=usage, cached=False, thought=thought)


SCRIPT = {
    "was paid": answer(f"It was paid with {card(3)}.", thought=f"They mean {card(4)}."),
    "My order": ToolCall("look", {"order": f"order of {card(1)}"}),
    "": f"I know {card(5)}.",
}


def build(script=SCRIPT, tools=(look,), name="clerk", **options):
    options = {"max_tool_iterations": 5, "model_client_stream": True} | options
    return AssistantAgent(name, ScriptedModel(script), tools=list(tools), **options)


def team():
    other = build({"": f"I heard of {card(6)}."}, tools=(), name="other")
    return RoundRobinGroupChat([build(), other], termination_condition=MaxMessageTermination(3))


class Talker(BaseChatAgent):
    """An agent that says and remembers something without any call."""

    produced_message_types = (TextMessage,)

    def __init__(self, name="talker"):
        super().__init__(name, "talks")
        self.heard, self.cards = [], {card(9): 1}

    async def on_messages(self, messages, cancellation_token):
        self.heard.append(f"{len(self.heard)}: {card(7)}")
        said = f"My own {card(8)}, and {len(self.heard)} things."
        return Response(chat_message=TextMessage(content=said, source=self.name))

    async def on_reset(self, cancellation_token):
        self.heard = []

    async def save_state(self):
        return {"heard": list(self.heard), "cards": dict(self.cards)}

    async def load_state(self, state):
        self.heard, self.cards = list(state["heard"]), dict(state["cards"])


class Failing(Talker):
    async def on_messages(self, messages, cancellation_token):
        try:
            int(f"inner {card(10)}")
        except ValueError as error:
            raise LookupError(f"no such card: {card(11)}") from error


def with_memory():
    memory = ListMemory(memory_contents=[MemoryContent(content=f"pays with {card(12)}", mime_type="text/plain")])
    return build(memory=[memory])


def proxy_team():
    proxy = UserProxyAgent("person", input_func=midturn.human)
    return RoundRobinGroupChat([build({"": f"Is it {card(13)}?"}, tools=()), proxy], max_turns=2)


def blueprint(factory=build, function=redact, **options):
    return midturn.Blueprint("desk", factory, redact=function, **options)
