"""Convert AutoGen's tasks, messages and results to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Sequence  # noqa: TC003 - pydantic reads the annotation
from dataclasses import dataclass, fields
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    MemoryQueryEvent,
    MessageFactory,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    TextMessage,
)
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import Image
from autogen_core.models import RequestUsage

from midturn.autogen import private
from midturn.autogen.messages import lossless, own_types
from midturn.errors import InvalidArgument, StateInvalid
from midturn.framework import Outcome
from midturn.history.turns import TurnOf
from midturn.questions import Waiting  # noqa: TC001 - pydantic reads the annotation
from midturn.record.codec import difference, is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from midturn.history.turns import StoredTurn
    from midturn.record.codec import Json


MEMORIES = "memories"
"""The key, in a stored message, of the memories that AutoGen's JSON does not preserve."""


REPLAYED = "midturn.replayed"
MAX_PIXELS = 4096 * 4096
"""Size of the largest image that a user can send over HTTP."""

NO_TYPES: Mapping[str, type[BaseChatMessage]] = {}

AUTOGENS = frozenset(private.message_classes(MessageFactory()))
"""Message types of AutoGen, which are always known."""


class TurnResult(TaskResult):
    """A ``TaskResult`` with its turn."""

    turn: int
    """The number of the turn."""
    checkpoint: int
    """The number of the checkpoint that the turn made."""
    usage: RequestUsage
    """The tokens that its messages report."""
    waiting: Waiting | None = None
    """The questions that a human has to answer before the turn can continue; ``None`` if it is complete."""
    recorded: bool = False
    """True if this was read from the record: the turn had run before, with the same key, or in another process."""
    notes: Sequence[str] = ()
    """The notes of ``turn.notes``: what earlier turns or attempts did that a reader of this result has to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn(TurnOf[BaseAgentEvent | BaseChatMessage, RequestUsage]):
    """One turn of a session's history, with AutoGen's messages."""


def accept(task: Any) -> list[BaseChatMessage] | None:
    """Return the task of a ``run(task=...)`` as messages. Errors have the words of AutoGen's."""
    if task is None:
        return None
    if isinstance(task, str):
        task = TextMessage(content=task, source="user")
    if isinstance(task, BaseChatMessage):
        task = [task]
    if not isinstance(task, list | tuple):
        raise InvalidArgument("Task must be a string, a BaseChatMessage, or a list of BaseChatMessage.", path="task")
    messages: list[Any] = list(task)  # pyright: ignore[reportUnknownArgumentType]
    if not messages:
        raise InvalidArgument("Task list cannot be empty.", path="task")
    for index, message in enumerate(messages):
        if not isinstance(message, BaseChatMessage):
            what = f"All messages in task list must be valid BaseChatMessage types, not {type(message).__name__}"
            raise InvalidArgument(what, path=f"task[{index}]")
    return messages


def of_user(parts: Sequence[str | bytes], id: str | None = None) -> BaseChatMessage:  # noqa: A002 - AutoGen's name
    """Return a message of a user: texts, and images as the bytes of their files.

    Raises:
        InvalidArgument: an image cannot be read.
    """
    facts: dict[str, Any] = {"source": "user"} | ({} if id is None else {"id": id})
    if all(isinstance(part, str) for part in parts):
        return TextMessage(content="\n".join(cast("Sequence[str]", parts)), **facts)
    return MultiModalMessage(content=[part if isinstance(part, str) else _image(part) for part in parts], **facts)


def _image(data: bytes) -> Image:
    from PIL import Image as Picture

    try:
        picture = Picture.open(BytesIO(data))
        if fits := picture.width * picture.height <= MAX_PIXELS:  # a small file may be a huge picture
            picture.load()
    except Exception as error:  # the library for images raises anything
        raise InvalidArgument(f"is not an image that can be read: {error}", path="image") from error
    if not fits:
        raise InvalidArgument(f"has more than {MAX_PIXELS:,} pixels", path="image")
    return Image.from_pil(picture)


def identity(message: Json) -> Json:
    """Return a message without its id and time, and without the id of a question to a user."""
    if not is_object(message):
        return message
    return {key: value for key, value in message.items() if key not in ("id", "created_at", "request_id")}


def load(
    live: Any, messages: Iterable[Json], what: str, *, types: Mapping[str, type[BaseChatMessage]] = NO_TYPES
) -> list[Any]:
    """Load messages from JSON. AutoGen or this agent or team must know their types. ``what`` names them in errors.

    ``types`` are known types, by their names.

    Raises:
        StateInvalid: a type is not known, or a message would not be loaded exactly as it was.
    """
    known = _known(live, types)
    return [_exactly(known, message, f"{what}[{index}]") for index, message in enumerate(messages)]


def load_earlier(live: Any, messages: Iterable[Json], what: str, *, as_text: bool = False) -> list[Any]:
    """Load messages of an earlier turn. If a type is gone or has changed, the content becomes a text message.

    ``as_text`` allows that also without an agent or team, which might know the type.

    Raises:
        StateInvalid: a message of AutoGen's own types would not be loaded exactly as it was, or no agent or team is
            built yet that could know the types.
    """
    known, as_text = _known(live), as_text or live is not None
    found: list[Any] = []
    for index, message in enumerate(messages):
        path = f"{what}[{index}]"
        try:
            found.append(_exactly(known, message, path))
        except StateInvalid:
            kind = message.get("type") if is_object(message) else None
            if not as_text or not is_object(message) or not isinstance(kind, str) or kind in AUTOGENS:
                raise
            found.append(_as_text(message, path))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The message types that can be loaded."""

    factory: MessageFactory
    given: Mapping[str, type[BaseChatMessage]]
    """Types of messages that were given to this process, by their names."""
    live: Any
    """A team knows the types that it lists. A single agent takes any that the program has defined."""

    def learn(self, message: dict[str, Json], path: str) -> None:
        """Have the factory know the type of a message. The error of a team has the words of AutoGen's.

        Raises:
            StateInvalid: the team does not list the type. Or no type, or more than one, has its name.
        """
        name = message.get("type")
        if name in AUTOGENS or not isinstance(name, str) or self.live is None:
            return
        if name in private.message_types(self.factory):
            return
        if isinstance(self.live, BaseGroupChat):
            raise StateInvalid(
                f"Message type {name} is not registered with the message factory. "
                "List it in the custom_message_types of the team.",
                path=path,
            )
        private.register(self.factory, name, self.given.get(name) or own_types.find(name, path))


def _known(live: Any, given: Mapping[str, type[BaseChatMessage]] = NO_TYPES) -> _Known:
    if isinstance(live, BaseGroupChat):
        return _Known(factory=private.message_factory(live), given=given, live=live)
    factory = MessageFactory()
    structured = private.structured_type(live) if isinstance(live, AssistantAgent) else None
    if structured is not None:
        factory.register(structured)
    return _Known(factory=factory, given=given, live=live)


def _exactly(known: _Known, message: Json, path: str) -> Any:
    try:
        found = _load(known, message, path)
    except StateInvalid:
        raise
    except Exception as error:  # validators and image libraries may raise anything
        raise StateInvalid(f"is not a message that this agent or team knows: {error}", path=path) from error
    if (dumped := dump(found)) != message and (part := difference(message, dumped, path)) is not None:
        raise StateInvalid("would change when it is loaded", path=part)
    return found


def _as_text(message: dict[str, Json], path: str) -> TextMessage:
    """Return a message as a text message: its content, or all fields of its own."""
    own = {key: value for key, value in message.items() if key not in (*TextMessage.model_fields, "format_string")}
    content = message.get("content", own)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    kept = {key: value for key, value in message.items() if key in TextMessage.model_fields}
    try:
        return TextMessage.model_validate({**kept, "content": text, "type": "TextMessage"})
    except ValueError as error:
        raise StateInvalid(f"is not a message: {error}", path=path) from error


def mark(event: Any) -> Any:
    """Return a copy of an event, marked as one of an earlier, interrupted attempt."""
    return event.model_copy(update={"metadata": {**event.metadata, REPLAYED: "true"}})


def replayed(event: Any) -> bool:
    """Return whether an event of ``run_stream`` happened in an earlier, interrupted attempt."""
    return REPLAYED in getattr(event, "metadata", {})


def outcome(result: TaskResult) -> Outcome:
    """Return the outcome of a run."""
    usages = [message.models_usage for message in result.messages if message.models_usage is not None]
    return Outcome(
        messages=[dump(message) for message in result.messages],
        stop_reason=result.stop_reason,
        usage=(sum(usage.prompt_tokens for usage in usages), sum(usage.completion_tokens for usage in usages)),
        native=result,
    )


def result(
    live: Any, outcome: Outcome, *, turn: int, checkpoint: int, waiting: Waiting | None, notes: Sequence[str]
) -> TurnResult:
    """Build the result of a session's ``run``."""
    native = outcome.native
    if isinstance(native, TaskResult):
        said = list(native.messages)
    elif is_array(native):
        said = _whole(native)
    else:
        said = load_earlier(live, outcome.messages, "result")
    return TurnResult.model_construct(
        messages=said,
        stop_reason=outcome.stop_reason,
        turn=turn,
        checkpoint=checkpoint,
        usage=RequestUsage(prompt_tokens=outcome.usage[0], completion_tokens=outcome.usage[1]),
        waiting=waiting,
        notes=tuple(notes),
        recorded=native is None and waiting is None,
    )


def turn(live: Any, stored: StoredTurn, said: Sequence[Any] | None, *, as_text: bool) -> Turn:
    """Return a stored turn with AutoGen's messages; without a result, with those of ``said``.

    The rest is as for :func:`load_earlier`.
    """
    what, task = f"turn {stored.number}", stored.task
    facts: dict[str, Any] = {field.name: getattr(stored, field.name) for field in fields(stored)}
    facts["task"] = None if task is None else load_earlier(live, task, f"{what}.task", as_text=as_text)
    if said is None:
        said = load_earlier(live, stored.messages, f"{what}.messages", as_text=as_text)
    facts["messages"] = tuple(_whole(said))
    facts["usage"] = RequestUsage(stored.usage.prompt_tokens, stored.usage.completion_tokens)
    return Turn(**facts)


def _whole(events: Iterable[Any]) -> list[Any]:
    """Return events without the pieces in which models streamed them."""
    return [event for event in events if not isinstance(event, ModelClientStreamingChunkEvent)]


def _load(known: _Known, message: Json, path: str) -> Any:
    if not is_object(message):
        raise StateInvalid("is not an object", path=path)
    known.learn(message, path)
    found = lossless.loaded(known.factory.create({key: value for key, value in message.items() if key != MEMORIES}))
    if MEMORIES in message:
        lossless.give(found, message[MEMORIES], path)
    return found


def dump(message: BaseAgentEvent | BaseChatMessage) -> Json:
    """Return a message as lossless JSON."""
    dumped = lossless.dump(message)
    if isinstance(message, MemoryQueryEvent) and lossless.is_missing(message):
        dumped[MEMORIES] = lossless.memories(message)
    return dumped
