"""Capture the result of AutoGen's own ``save_state()``, without dumping old messages again.

While ``save_state()`` runs, empty lists replace the lists of messages. The caller dumps only the new messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.messages import BaseChatMessage
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import SingleThreadedAgentRuntime
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import LLMMessage
from pydantic import TypeAdapter

from midturn.autogen import private
from midturn.autogen.messages import lossless
from midturn.autogen.parts.kinds import KNOWN_CONTEXTS, is_pure
from midturn.errors import StateInvalid
from midturn.record.codec import MAX_DEPTH, class_of, is_object
from midturn.record.packing import Grown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from autogen_agentchat.messages import MessageFactory

    from midturn.record.codec import Json

UNORDERED = {("AzureAIAgentState", "initial_message_ids"), ("OpenAIAssistantAgentState", "initial_message_ids")}
"""Lists that AutoGen makes from sets, by the type of the state that contains them."""

LLM_MESSAGE: TypeAdapter[Any] = TypeAdapter(LLMMessage)
LLM_MESSAGES: TypeAdapter[list[Any]] = TypeAdapter(list[LLMMessage])

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrowingList:
    """A list of messages that grows: the object and attribute that hold it, and its path in the saved state."""

    owner: Any
    attribute: str
    path: Path
    dump: Callable[[Any], Json]
    load: Callable[[Any], Any]
    """Loads one item from JSON, or raises ValueError or TypeError."""
    factory: MessageFactory | None = None
    """The factory of a team's messages; ``None`` for the messages that a model gets."""

    @property
    def items(self) -> list[Any]:
        """Return the live list."""
        found: list[Any] = getattr(self.owner, self.attribute)
        return found

    def load_all(self, items: list[Any]) -> tuple[list[Any], list[Any]]:
        """Load all items from JSON; return the items and their dumps."""
        if self.factory is None:  # one call for all items takes a quarter of the time
            loaded = LLM_MESSAGES.validate_python(items)
            return loaded, LLM_MESSAGES.dump_python(loaded)
        loaded = [self.load(item) for item in items]
        return loaded, [self.dump(item) for item in loaded]

    def put(self, items: list[Any]) -> None:
        """Replace the live list."""
        setattr(self.owner, self.attribute, items)


@dataclass(slots=True)
class Shape:
    """The known facts about the state of an agent, a team, a context or a runtime, before saving or loading it."""

    growing_lists: list[GrowingList] = field(default_factory=list[GrowingList])
    teams: list[tuple[BaseGroupChat, Path]] = field(default_factory=list[tuple[BaseGroupChat, Path]])
    """Each team, and the path of its state."""
    opaque: set[Path] = field(default_factory=set[Path])
    """The paths of states that a user's own class defines."""
    pure: bool = True
    """True if every ``save_state()`` in it is AutoGen's own; a user's method may read the lists, so they stay."""


def shape(live: Any) -> Shape:
    """Return the shape of a state; the managers and containers of its teams must have been built."""
    found = Shape()
    _shape(live, (), found)
    return found


def _shape(live: Any, path: Path, found: Shape) -> None:
    if not is_pure(live):
        found.opaque.add(path)
        found.pure = False
    elif isinstance(live, ChatCompletionContext):
        if type(live) in KNOWN_CONTEXTS:
            found.growing_lists.append(context_list(live, private.CONTEXT_MESSAGES, (*path, "messages")))
    elif isinstance(live, AssistantAgent):
        _shape(private.model_context(live), (*path, "llm_context"), found)
    elif isinstance(live, SocietyOfMindAgent):
        _shape(getattr(live, private.SOCIETY_TEAM), (*path, "inner_team_state"), found)
    elif isinstance(live, BaseGroupChat):
        _shape_team(live, path, found)
    elif isinstance(live, SingleThreadedAgentRuntime):
        for name, agent in private.instantiated(live).items():
            found.opaque.add((*path, name))
            found.pure = found.pure and is_pure(agent)
    elif not class_of(live).__module__.startswith("autogen_agentchat."):
        found.opaque.add(path)


def _shape_team(team: BaseGroupChat, path: Path, found: Shape) -> None:
    found.teams.append((team, path))
    factory = private.message_factory(team)
    for name, container in private.containers(team).items():
        at = (*path, "agent_states", name)
        if not is_pure(container):
            found.opaque.add(at)
            found.pure = False
        elif name == private.manager_name(team):
            found.growing_lists.append(
                _thread_list(container, private.MANAGER_THREAD, (*at, "message_thread"), factory)
            )
        else:
            found.growing_lists.append(
                _thread_list(container, private.CONTAINER_BUFFER, (*at, "message_buffer"), factory)
            )
    for participant in private.participants(team):
        _shape(participant, (*path, "agent_states", participant.name, "agent_state"), found)


def context_list(owner: Any, attribute: str, path: Path) -> GrowingList:
    """Return the growing list of messages that a model gets."""
    return GrowingList(owner, attribute, path, dump=_dump_model, load=LLM_MESSAGE.validate_python)


def _thread_list(owner: Any, attribute: str, path: Path, factory: MessageFactory) -> GrowingList:
    def load(value: Any) -> Any:
        message = lossless.loaded(factory.create(value))
        if attribute == private.CONTAINER_BUFFER and not isinstance(message, BaseChatMessage):
            raise ValueError(f"a {type(message).__name__} is not a chat message")
        return message

    return GrowingList(owner, attribute, path, dump=lossless.dump, load=load, factory=factory)


async def capture(live: Any, known: Shape) -> Any:
    """Return the result of ``save_state()``, with a :class:`Grown` in place of each growing list."""
    growing_lists = [growing for growing in known.growing_lists if growing.items] if known.pure else []
    with _emptied(growing_lists) as lists:
        state = await _save(live)
    for growing, items in zip(growing_lists, lists, strict=True):
        parent = state
        for name in growing.path[:-1]:
            parent = parent.get(name) if is_object(parent) else None
        if not is_object(parent) or parent.get(growing.path[-1]) != []:
            return await _save(live)  # its save_state() has another form than we expect
        parent[growing.path[-1]] = Grown(items, growing.dump)
    return state


async def _save(live: Any) -> Any:
    cls = class_of(live)
    try:
        state = await live.save_state()
    except NotImplementedError as error:  # as the runtime for distributed agents does
        raise StateInvalid(f"{cls.__name__} cannot save its state: {error}", path="$.state") from error
    if not issubclass(class_of(state), Mapping):
        raise StateInvalid(
            f"save_state() of {cls.__name__} returned a {class_of(state).__name__}, not a dict", path="$.state"
        )
    return copied(state)


@contextmanager
def _emptied(growing_lists: Sequence[GrowingList]) -> Generator[list[list[Any]]]:
    """Put empty lists in place of the growing lists, so that ``save_state()`` dumps everything but their items."""
    lists = [growing.items for growing in growing_lists]
    try:
        for growing in growing_lists:
            growing.put([])
        yield lists
    finally:
        for growing, items in zip(growing_lists, lists, strict=True):
            growing.put(items)


def copied(state: Any, path: str = "$.state", depth: int = 1) -> Any:
    """Copy a state into plain dicts and lists: some components return their live objects, or Counters."""
    if depth > MAX_DEPTH:
        raise StateInvalid(f"nested deeper than {MAX_DEPTH} levels", path=path)
    kind = class_of(state)
    if issubclass(kind, Mapping):
        return {
            key: sorted(value) if (state.get("type"), key) in UNORDERED else copied(value, f"{path}.{key}", depth + 1)
            for key, value in state.items()
        }
    if issubclass(kind, list | tuple):
        return [copied(value, f"{path}[{i}]", depth + 1) for i, value in enumerate(state)]
    return state


def _dump_model(message: Any) -> Any:
    return message.model_dump()
