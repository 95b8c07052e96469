"""Save and load each kind of part that AutoGen's ``save_state()`` omits: memories, conditions, tools and others.

A :class:`Kept` first checks a stored value and changes nothing (``read``). Then it loads the value into its part
(``load``). Some parts are at rest between turns; their state is not stored at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from autogen_agentchat.base import ChatAgent, Team, TerminationCondition
from autogen_agentchat.messages import StopMessage
from autogen_agentchat.teams import BaseGroupChat, GraphFlow, RoundRobinGroupChat
from autogen_core import AgentRuntime
from autogen_core.memory import ListMemory
from autogen_core.model_context import ChatCompletionContext
from pydantic import ValidationError

from midturn.autogen import private
from midturn.autogen.messages import lossless
from midturn.autogen.parts.kinds import is_tool_with_state, loads_and_saves
from midturn.autogen.state.save_state import context_list, copied
from midturn.autogen.state.validation import Saved, read_list
from midturn.errors import Drifted, StateInvalid
from midturn.record.codec import class_of, is_array, is_object
from midturn.record.packing import Grown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from autogen_core.tools import BaseTool

    from midturn.autogen.parts.walk import Part
    from midturn.record.codec import Json


NO_POSITIONS: Mapping[int, str] = {}


class Kept(Protocol):
    """A keeper of one stored value, by its path. The empty path is AutoGen's state of the agent or team itself."""

    path: str
    rests: bool
    """True if nothing is stored while the part is at rest; ``load(None)`` puts the part to rest."""
    is_opaque: bool
    """True if a user's own class defines the stored value, which may then differ each time that it is saved."""

    async def save(self) -> Any:
        """Return the value to store; ``None`` to store nothing."""
        ...

    async def read(self, value: Json, at: str) -> Any:
        """Check a stored value, and return it ready to be loaded.

        Raises:
            StateInvalid: the value does not fit.
        """
        ...

    async def load(self, read: Any) -> None:
        """Load a value that was read into the part."""
        ...


def kept(part: Part, positions: Mapping[int, str] = NO_POSITIONS) -> Iterator[Kept]:
    """Yield the keepers of a part; ``positions`` has the names of the next speakers, by the ``id()`` of their team."""
    live, cls = part.live, class_of(part.live)
    saves_itself = issubclass(cls, ChatAgent | Team | ChatCompletionContext | AgentRuntime) or loads_and_saves(cls)
    if saves_itself or not part.path:
        if not part.covered:
            yield Saved(part.path, live, positions)
        yield from _more(part)
    elif isinstance(live, ListMemory):
        yield _Memories(part.path, live)
    elif isinstance(live, TerminationCondition):
        yield from _conditions(part)
    elif is_tool_with_state(cls):
        yield _Tool(part.path, live)
    elif private.is_canvas(cls):
        yield _Canvas(part.path, live)


def _more(part: Part) -> Iterator[Kept]:
    """Yield the keepers of an agent or a team besides that of its own state."""
    live = part.live
    if isinstance(live, BaseGroupChat):
        yield _Recalled(part.at("manager/message_thread"), live)
    if isinstance(live, RoundRobinGroupChat):
        yield _Position(part.at("manager"), live)
    elif isinstance(live, GraphFlow):
        yield _Triggered(part.at("manager"), live)
    elif isinstance(live, ChatAgent) and private.has_history(live):
        yield _History(part.at("chat_history"), live)


class _Memories:
    """The contents of a list memory."""

    rests = False
    is_opaque = False

    def __init__(self, path: str, memory: ListMemory) -> None:
        self.path, self._memory = path, memory

    async def save(self) -> Any:
        return Grown([lossless.frozen(memory) for memory in self._memory.content], lossless.encode)

    async def read(self, value: Json, at: str) -> Any:
        if not is_array(value):
            raise StateInvalid("is not a list of memories", path=at)
        return [lossless.decode(item, f"{at}[{i}]") for i, item in enumerate(value)]

    async def load(self, read: Any) -> None:
        self._memory.content[:] = read  # others may hold the list itself


def _conditions(part: Part) -> Iterator[Kept]:
    for cls in type(part.live).__mro__:
        if cls in private.CONDITION_FIELDS:
            yield _Condition(part.path, part.live, private.CONDITION_FIELDS[cls])
            return


class _Condition:
    """The counts and flags of a termination condition."""

    rests = True
    is_opaque = False

    def __init__(self, path: str, condition: TerminationCondition, fields: tuple[str, ...]) -> None:
        self.path, self._condition = path, condition
        self._fields = {field.lstrip("_"): field for field in fields}

    async def save(self) -> Any:
        found = {name: getattr(self._condition, field) for name, field in self._fields.items()}
        return {name: _plain(value) for name, value in found.items()} if any(found.values()) else None

    async def read(self, value: Json, at: str) -> Any:
        if not is_object(value) or set(value) != set(self._fields):
            raise Drifted(f"is not the state of a {type(self._condition).__name__}", path=at)
        read: dict[str, Any] = {}
        for name, field in self._fields.items():
            now, item = getattr(self._condition, field), value[name]
            if type(item) is not type(now):
                raise StateInvalid(f"is not of the type {type(now).__name__}", path=f"{at}.{name}")
            try:
                read[field] = [StopMessage.model_validate(stop) for stop in item] if is_array(item) else item
            except ValidationError as error:
                raise StateInvalid(f"is not a list of stop messages: {error}", path=f"{at}.{name}") from error
        return read

    async def load(self, read: Any) -> None:
        if read is None:
            await self._condition.reset()
            return
        for field, value in read.items():
            setattr(self._condition, field, value)


def _plain(value: Any) -> Any:
    return [message.dump() for message in value] if is_array(value) else value


class _Tool:
    """The state of a tool."""

    rests = False
    is_opaque = True

    def __init__(self, path: str, tool: BaseTool[Any, Any]) -> None:
        self.path, self._tool = path, tool

    async def save(self) -> Any:
        return copied(await self._tool.save_state_json())

    async def read(self, value: Json, at: str) -> Any:
        if not is_object(value):
            raise StateInvalid("is not the state of a tool", path=at)
        return value

    async def load(self, read: Any) -> None:
        await self._tool.load_state_json(read)


class _Canvas:
    """The files of a canvas, with all their revisions."""

    rests = False
    is_opaque = False

    def __init__(self, path: str, canvas: Any) -> None:
        self.path, self._canvas = path, canvas

    async def save(self) -> Any:
        files: dict[str, int] = self._canvas.list_files()
        return {
            name: [self._canvas.get_revision_content(name, number) for number in range(1, latest + 1)]
            for name, latest in files.items()
        }

    async def read(self, value: Json, at: str) -> Any:
        if not is_object(value):
            raise StateInvalid("is not a canvas", path=at)
        for name, revisions in value.items():
            if not is_array(revisions) or not all(isinstance(text, str) for text in revisions):
                raise StateInvalid("is not a list of texts", path=f"{at}.{name}")
        return value

    async def load(self, read: Any) -> None:
        private.clear_canvas(self._canvas)
        for name, revisions in read.items():
            for text in revisions:
                self._canvas.add_or_update_file(name, text)


class _Position:
    """The name of the next speaker. AutoGen stores a number, which :class:`Saved` corrects if the order has changed."""

    rests = False
    is_opaque = False

    def __init__(self, path: str, team: RoundRobinGroupChat) -> None:
        self.path, self._team = path, team

    async def save(self) -> Any:
        return {"next_speaker": private.next_speaker(self._team)}

    async def read(self, value: Json, at: str) -> Any:
        if not is_object(value) or set(value) != {"next_speaker"} or not isinstance(value["next_speaker"], str):
            raise StateInvalid("does not name the next speaker", path=at)
        return None

    async def load(self, read: Any) -> None:
        pass


class _Triggered:
    """The activation groups that have made a graph's nodes ready."""

    rests = True
    is_opaque = False

    def __init__(self, path: str, team: GraphFlow) -> None:
        self.path, self._team = path, team

    async def save(self) -> Any:
        found = {node: sorted(groups) for node, groups in private.triggered_groups(self._team).items() if groups}
        return {"triggered": found} if found else None

    async def read(self, value: Json, at: str) -> Any:
        triggered = value.get("triggered") if is_object(value) and set(value) == {"triggered"} else None
        if not is_object(triggered):
            raise StateInvalid("does not say which activation groups were triggered", path=at)
        known = private.activation_groups(self._team)
        for node, groups in triggered.items():
            if node not in known:
                raise Drifted("is not a node of the graph", path=f"{at}.triggered.{node}")
            if not is_array(groups) or not all(isinstance(group, str) and group in known[node] for group in groups):
                raise Drifted("names an activation group that the graph lacks", path=f"{at}.triggered.{node}")
        return triggered

    async def load(self, read: Any) -> None:
        private.set_triggered_groups(self._team, read or {})


class _Recalled:
    """Memories in the messages of a team's thread that are lost in AutoGen's JSON of the messages."""

    rests = True
    is_opaque = False

    def __init__(self, path: str, team: BaseGroupChat) -> None:
        self.path, self._team = path, team

    def _thread(self) -> list[Any]:
        thread: list[Any] = getattr(private.manager(self._team), private.MANAGER_THREAD, [])
        return thread

    async def save(self) -> Any:
        found = [item for item in enumerate(self._thread()) if lossless.is_missing(item[1])]
        return Grown(found, lambda item: {"index": item[0], "memories": lossless.memories(item[1])}) if found else None

    async def read(self, value: Json, at: str) -> Any:
        if not is_array(value):
            raise StateInvalid("is not a list", path=at)
        for i, item in enumerate(value):
            if not is_object(item) or set(item) != {"index", "memories"} or type(item["index"]) is not int:
                raise StateInvalid("does not say which message has which memories", path=f"{at}[{i}]")
        return [(item, f"{at}[{i}]") for i, item in enumerate(value) if is_object(item)]

    async def load(self, read: Any) -> None:
        thread = self._thread()
        for item, at in read or ():
            message = thread[item["index"]] if 0 <= item["index"] < len(thread) else None
            lossless.give(message, item["memories"], at)


class _History:
    """The conversation of an agent of AutoGen's extensions, which keeps it in a list of its own."""

    rests = False
    is_opaque = False

    def __init__(self, path: str, agent: ChatAgent) -> None:
        self.path, self._history = path, context_list(agent, private.SURFER_HISTORY, ())

    async def save(self) -> Any:
        return Grown(self._history.items, self._history.dump)

    async def read(self, value: Json, at: str) -> Any:
        return read_list(self._history, value, at)

    async def load(self, read: Any) -> None:
        self._history.put(read)
