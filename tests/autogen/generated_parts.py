"""Parts of generated agents and teams: a scripted model, tools, and objects of a user's own."""

import hashlib
import json

from autogen_agentchat.agents import ApprovalResponse, BaseChatAgent
from autogen_agentchat.base import Response, TerminatedException, TerminationCondition
from autogen_agentchat.messages import StopMessage, TextMessage
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.models import CreateResult, RequestUsage
from autogen_core.tools import BaseToolWithState
from kinds import anonymous
from pydantic import BaseModel
from scripted import Scripted, calls, digest

EXTRAS = ("", "", "", "STOP", "```sh\nls\n```")
"""Additions that some answers have."""


def timeless(value):
    """JSON without the ids and times of messages, nor those of questions to a user."""
    return _without_requests(anonymous(json.loads(json.dumps(value))))


def _without_requests(value):
    if isinstance(value, dict):
        return {key: _without_requests(item) for key, item in value.items() if key != "request_id"}
    return [_without_requests(item) for item in value] if isinstance(value, list) else value


class Answer(BaseModel):
    text: str
    sure: bool


class Model(Scripted):
    """Answers with text, with calls of the tools it is offered, or with the JSON it is asked for."""

    def __init__(self, name, members=(), *, chooses=False, fragile=False):
        super().__init__()
        self._name = name
        self._members = members
        self._chooses = chooses
        self._fragile = fragile

    async def create(self, messages, *, tools=(), json_output=None, **_):
        offered = [tool if isinstance(tool, dict) else tool.schema for tool in tools]
        mark = _mark(self._name, digest(messages), *(tool["name"] for tool in offered))
        number = int(mark, 16)
        if self._fragile and number % 8 == 0:
            raise ConnectionError("503")
        if offered and number % 4:
            return calls(*_wanted(offered, number // 4, mark))
        if isinstance(json_output, type):
            text = json.dumps(self._filled(json_output, number, mark))
        elif self._chooses:
            text = [*self._members, "nobody"][number % (len(self._members) + 1)]
        else:
            text = f"{len(messages)} {_decided(mark)} {EXTRAS[number // 2 % len(EXTRAS)]}"
        usage = RequestUsage(prompt_tokens=len(messages), completion_tokens=2)
        return CreateResult(finish_reason="stop", content=text, usage=usage, cached=False)

    def _filled(self, model, number, mark):
        found = {}
        for i, (name, field) in enumerate(model.model_fields.items(), 3):
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                found[name] = self._filled(field.annotation, number >> i, f"{mark} {name}")
            elif field.annotation is bool:
                found[name] = number % 3 == 0
            else:
                found[name] = _decided(mark)
        if "next_speaker" in found:
            found["next_speaker"]["answer"] = self._members[number % len(self._members)]
        return found


def _mark(*parts):
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=4).hexdigest()


def _decided(mark):
    """A text by which the edges of a graph can be chosen."""
    return f"{mark} {('yes', 'no')[int(_mark(mark), 16) % 2]}"


def _wanted(offered, number, mark):
    """One tool, or two that can run at once."""
    first = offered[number % len(offered)]
    second = offered[number // 7 % len(offered)]
    wanted = [first]
    alone = ("task" in tool["parameters"]["properties"] or "transfer" in tool["name"] for tool in (first, second))
    if number % 3 == 0 and not any(alone):
        wanted.append(second)
    return [(tool["name"], json.dumps(dict.fromkeys(tool["parameters"]["properties"], mark))) for tool in wanted]


# --- things of a user's own, with the two methods that keep their state


class Tally(BaseChatAgent):
    """An agent that knows how much it was told."""

    def __init__(self, name):
        super().__init__(name, "It counts.")
        self._told = 0

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        self._told += sum(len(message.to_model_text()) for message in messages)
        return Response(chat_message=TextMessage(content=_decided(str(self._told)), source=self.name))

    async def on_reset(self, cancellation_token):
        self._told = 0

    async def save_state(self):
        return {"told": self._told}

    async def load_state(self, state):
        self._told = state["told"]


class Cart:
    """An object whose method is a tool."""

    def __init__(self):
        self._things = []

    async def put(self, thing: str) -> str:
        """Put a thing into the cart."""
        self._things.append(thing)
        return _decided(_mark(*self._things))

    async def save_state(self):
        return {"things": list(self._things)}

    async def load_state(self, state):
        self._things = list(state["things"])


class Typist:
    """Somebody at a keyboard who never types the same twice."""

    def __init__(self):
        self._typed = 0

    def __call__(self, prompt):
        self._typed += 1
        return _decided(f"{self._typed} {_mark(prompt)}")

    async def save_state(self):
        return {"typed": self._typed}

    async def load_state(self, state):
        self._typed = state["typed"]


class Patience:
    """Runs out at every ``limit``-th message, however many runs they take."""

    def __init__(self, limit):
        self._limit = limit
        self._heard = 0

    def __call__(self, messages):
        before, self._heard = self._heard, self._heard + len(messages)
        return before // self._limit != self._heard // self._limit

    async def save_state(self):
        return {"heard": self._heard}

    async def load_state(self, state):
        self._heard = state["heard"]


class Quota(Patience, TerminationCondition):
    """The same as a condition of its own; ``reset`` does not fill it up again."""

    def __init__(self, limit):
        super().__init__(limit)
        self._over = False

    @property
    def terminated(self):
        return self._over

    async def __call__(self, messages):
        if self._over:
            raise TerminatedException("over")
        self._over = Patience.__call__(self, messages)
        return StopMessage(content="no more", source="Quota") if self._over else None

    async def reset(self):
        self._over = False


class Thing(BaseModel):
    thing: str


class Shelf(BaseModel):
    things: list[str] = []


class Counter(BaseToolWithState[Thing, Shelf, Shelf]):
    """AutoGen's own kind of tool with a state."""

    def __init__(self, name):
        super().__init__(Thing, Shelf, Shelf, name, "Put a thing on the shelf.")
        self._shelf = Shelf()

    async def run(self, args, cancellation_token):
        self._shelf = Shelf(things=[*self._shelf.things, args.thing][-3:])
        return self._shelf

    def save_state(self):
        return self._shelf

    def load_state(self, state):
        self._shelf = state


# --- AutoGen's other parts, scripted


class Executor(CodeExecutor):
    async def execute_code_blocks(self, code_blocks, cancellation_token):
        mark = _mark(*(block.code for block in code_blocks))
        return CodeResult(exit_code=int(mark, 16) % 2, output=mark)

    async def start(self):
        pass

    async def stop(self):
        pass

    async def restart(self):
        pass


async def approve(request):
    return ApprovalResponse(approved=bool(int(_mark(request.code), 16) % 4), reason="because")


async def type_the_same(prompt, cancellation_token):
    return _decided(_mark(prompt))


async def look(thing: str) -> str:
    """Look a thing up."""
    return _decided(_mark("look", thing))
