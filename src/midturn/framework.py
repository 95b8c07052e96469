"""The interface between midturn and an agent framework. :mod:`midturn.autogen.adapter` implements it for AutoGen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias, TypeVar

from midturn.record.codec import is_object
from midturn.redaction import texts_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from midturn.questions import Waiting
    from midturn.record.codec import Json
    from midturn.record.rows import Effect, What
    from midturn.redaction import Clean, Redaction
    from midturn.stopping import Stop
    from midturn.tools import CallInDoubt, Declaration

EventT_co = TypeVar("EventT_co", covariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """An accepted input, and how the agent or team gets it."""

    task: list[Json] | None = None
    """The messages; ``None`` for a turn without a task."""
    streamed: bool = False
    """True if the agent's own stream runs the turn, and not its ``run``: the two may have different results."""
    output_task_messages: bool = True
    """True if the messages of the task are part of the result."""
    turn: str = ""
    """A name of the turn that no other turn has. The ids of its messages depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a turn, as JSON."""

    messages: Sequence[Json]
    stop_reason: str | None = None
    usage: tuple[int, int] = (0, 0)
    """Prompt and completion tokens."""
    native: Any = None
    """The framework's own result, if the turn ran in this process; the events so far, if the turn waits."""


class Rest(Protocol[EventT_co]):
    """A run as it stands, which rests until people have answered. It makes no calls meanwhile."""

    @property
    def is_still(self) -> bool:
        """Return whether nothing in the run has moved since it rests; otherwise it cannot continue."""
        ...

    def proceed(self, stops: Sequence[Stop], spent: float) -> AsyncGenerator[EventT_co | Outcome, None]:
        """Let the run continue, with other ``stops``; yield its further events as :meth:`Framework.stream` does.

        The turn has run for ``spent`` seconds, without its rests.
        """
        ...

    async def end(self) -> None:
        """End the run, which does not continue."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """An instance after a state was loaded into it."""

    captured: Any
    """The state of the instance, captured after loading."""
    gained: Sequence[str]
    """Paths at which an object of the user has more than the stored state: a new value, or one that the state lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call that an agent is about to make."""

    path: str
    """The caller and what it calls, by names that are the same in every process: ``participants/ann/model_client``."""
    agent: str
    """The part of the path that names the agent."""
    who: str = ""
    """The agent's own name."""
    what: What
    key: str
    """A digest of the request."""
    name: str = ""
    """The tool's name."""
    arguments: Any = None
    question: str = ""
    """The question to a person."""
    schema: Mapping[str, Any] | None = None
    """The JSON schema of the arguments, if the tool has one."""
    effect: Effect = "read"
    approval: bool = False
    reconcile: Callable[[CallInDoubt], Any] | None = None
    result_of_text: Callable[[str, bool], dict[str, Any]] | None = None
    """Makes a result from a text, for a call without a result of its own; the flag is true if the call failed."""
    texts: Callable[[dict[str, Any], Clean], dict[str, Any]] = texts_in
    """Returns the value of an answer with its texts cleaned."""
    redacted: Callable[[Answer], Awaitable[Answer]] | None = None
    """Adjusts an answer whose texts were replaced."""

    def changed(self, arguments: dict[str, Any] | None) -> Any:
        """Return the arguments of the call, with the changes that a human made."""
        mine: Any = self.arguments or {}
        if not arguments:
            return mine
        return {**mine, **arguments} if is_object(mine) else arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a call."""

    value: dict[str, Any]
    """The result as JSON."""
    native: Any = None
    """The framework's own result; ``None`` if the result comes from the journal."""
    failed: bool = False
    """True if the tool reported a failure."""
    starts: Sequence[str] = ()
    """The unsafe tool calls that this answer starts: the key of each, a space, and the call for people to read."""
    usage: tuple[int, int] = (0, 0)
    """The prompt and completion tokens that a model has counted."""
    spent: float | None = None
    """Seconds that the turn had run until the call was complete, if the result comes from the journal."""


class Calls(Protocol):
    """The calls inside a turn. A framework makes every call through this object, which makes each call only once."""

    recording: bool
    """True if calls are recorded; otherwise, :func:`midturn.tools.needs_journal` tells which tools cannot run."""
    redaction: Redaction | None
    """Redacts the answers of the calls. The framework uses it for what agents say themselves, and for errors."""

    @property
    def replaying(self) -> bool:
        """Return whether the turn repeats what an interrupted attempt has already done."""
        ...

    async def enter(self) -> None:
        """Wait until the caller may work. Only a few callers work in one round of the event loop, however many wait."""
        ...

    async def quiet(self) -> None:
        """Wait until the event loop has nothing left to run, or for many rounds if other work keeps it busy."""
        ...

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """Return the recorded answer of a call. If no answer is recorded, ``make`` the call and record its answer."""
        ...

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        """Ask a human to approve a call; return the arguments to use, or the reason why the human denied the call."""
        ...

    async def fail(self, error: Exception) -> NoReturn:
        """End the turn with an error, from inside it."""
        ...

    async def ask(self, request: Request, question: str) -> str:
        """Return a human's answer to a question. Without an answer, this does not return, and the turn waits."""
        ...

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """Return the recorded tools of a path. If none are recorded, ``see`` lists them; the next call records them."""
        ...


class Runnable(Protocol):
    """An agent or a team that a session can run."""

    @property
    def run_stream(self) -> Callable[..., Any]:
        """Return the method that runs it."""
        ...


Factory: TypeAlias = "Callable[[], Runnable | Awaitable[Runnable]]"
"""A function, sync or async, that builds an agent or a team."""


Place: TypeAlias = "tuple[str, ...]"
"""The keys that lead to a value in a captured state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A message in a captured state, with what a comparison of two states needs to know of it."""

    message: Json
    id: str | None
    """The id that the message keeps when its text changes; ``None`` if it has no id."""
    kind: str
    who: str
    text: str
    """The text for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A list of messages in a captured state."""

    agent: str
    """The path of the agent or team that it belongs to; empty for the whole."""
    kind: str
    """The framework's word for what the list is for."""
    messages: Sequence[Utterance]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The parts of a captured state, for readers. Two states with equal conversations and values are equal."""

    conversations: Mapping[Place, Conversation]
    speakers: Mapping[str, Sequence[str]]
    """The names of those who speak next in each team, by its path."""
    values: Mapping[Place, Json]
    """All values outside the conversations. An object counts as its values, unless it is empty."""


class View(Protocol):
    """A captured state, with the framework's own methods for migrating it."""

    @property
    def tree(self) -> Json:
        """Return the state as JSON."""
        ...

    @property
    def touched(self) -> frozenset[str]:
        """Return the agents and tools that the migration has renamed, removed, added or changed."""
        ...

    @property
    def is_open(self) -> bool:
        """Return whether a value is left open, which only a newly built instance has: see :meth:`Framework.fill`."""
        ...

    def check(self) -> None:
        """Check that the migrated state is a valid state.

        Raises:
            StateInvalid: the state is not valid.
        """
        ...


Destination: TypeAlias = Literal["agent-framework", "responses", "openai-chat"]
"""The place where a conversation continues: a session of Microsoft Agent Framework, or the input of OpenAI's Responses
API or chat completions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The conversations in a captured state, as JSON for another library."""

    agents: Mapping[str, Json]
    """A document for each agent that keeps a conversation, by its path: what its model saw."""
    threads: Mapping[str, Json]
    """A document for the thread of each team, by the team's path; the outermost team is ``team``."""
    left_out: Sequence[str]
    """A sentence for each thing in the state that the documents have no place for."""


class Framework(Protocol[EventT_co, ResultT_co]):
    """An agent framework: runs, captures and restores its agents. ``live`` is an agent or a team."""

    @property
    def result_type(self) -> type[ResultT_co]:
        """Return the type of the results of ``run``; no event has it."""
        ...

    def another(self) -> Framework[EventT_co, ResultT_co]:
        """Return a new framework object, for another instance."""
        ...

    def is_live(self, what: object) -> bool:
        """Return whether ``what`` is a live agent or team whose state can be saved and loaded, and not a factory."""
        ...

    async def renew(self, live: Any) -> None:
        """Make an instance usable again after an aborted run. Its state is not restored."""
        ...

    async def prepare(self, live: Any) -> list[str]:
        """Make an instance ready for its next turn; return the repairs that its state needed."""
        ...

    async def capture(self, live: Any) -> Any:
        """Return the state of an instance that is not running: the framework's own under "state", the rest beside it.

        Raises:
            StateInvalid: the state cannot be captured now.
        """
        ...

    async def fit(self, live: Any, tree: Any) -> Any:
        """Check a whole captured state against an instance, and return a plan for loading it. Change nothing.

        Raises:
            StateInvalid: the state does not fit.
        """
        ...

    async def load(self, live: Any, plan: Any) -> Loaded:
        """Load the state of a plan into an instance, and check the result.

        Raises:
            StateInvalid: a part of the instance rejected the state; the instance must not be used.
        """
        ...

    async def fingerprint(self, live: Any) -> dict[str, Json]:
        """Return how an instance was built, in readable JSON without secrets: prompts, tools, participants."""
        ...

    def view(self, tree: Json) -> View:
        """Return the view of a captured state that a migration gets."""
        ...

    async def fill(self, live: Any, tree: Json) -> Json:
        """Return a migrated state whose new parts have the state of a newly built instance.

        Raises:
            StateInvalid: the instance has no such parts.
        """
        ...

    def outline(self, tree: Json) -> Outline:
        """Return the parts of a captured state, for readers."""
        ...

    def mentions(self, tree: Json, tool: str) -> int:
        """Count the calls of a tool in the conversation."""
        ...

    def export(self, tree: Json, *, to: Destination, session: str) -> Exported:
        """Return the conversations in a captured state as documents for another library."""
        ...

    def accept(self, task: Any) -> list[Json] | None:
        """Return a task as messages; ``None`` if there is no task.

        Raises:
            InvalidArgument: ``task`` is not a task.
        """
        ...

    def check(self, live: Any, task: Sequence[Json]) -> None:
        """Check that this instance can read an accepted task back.

        Raises:
            InvalidArgument: the instance cannot read the task.
        """
        ...

    def texts(self, message: Json, clean: Clean) -> Json:
        """Return a message with its texts cleaned."""
        ...

    async def redact(self, tree: Any, redaction: Redaction) -> Any:
        """Return a state with its texts redacted; the same object if nothing changes."""
        ...

    def identity(self, message: Json) -> Json:
        """Return a message without ids and times, to compare the messages of two tasks."""
        ...

    def stream(
        self,
        live: Any,
        given: Input,
        calls: Calls,
        effects: Mapping[str, Declaration],
        stops: Sequence[Stop],
    ) -> AsyncGenerator[EventT_co | Outcome, None]:
        """Run a turn and yield its events, then its outcome.

        When one of the ``stops`` is done, the run ends, even if nobody reads its events. This yields what was said
        before, and then raises the error of that stop. Closing the generator ends the run, too. Every call inside the
        run goes through ``calls``. ``effects`` holds the blueprint's declarations about tools, by the names of the
        tools. If these have a redaction, what this yields has its texts redacted, and so have the errors of the calls.

        If a stop raises :class:`midturn.stopping.Resting`, and the run can continue later, the error has its
        :class:`Rest`. The caller then continues that or ends it.
        """
        ...

    def again(self, event: Any) -> Any:
        """Return a copy of an event, marked as one that happened before."""
        ...

    def turn(self, live: Any, stored: Any, *, said: Sequence[Any] | None = None, as_text: bool = False) -> Any:
        """Return a stored turn with the framework's own messages, whose types ``live`` may know.

        ``said`` has the events of a turn without a result. If ``as_text``, a message of an unknown type becomes text.

        Raises:
            StateInvalid: ``live`` is ``None``, and a type is not known.
        """
        ...

    def result(
        self,
        live: Any,
        *,
        turn: int,
        checkpoint: int,
        outcome: Outcome,
        waiting: Waiting | None = None,
        notes: Sequence[str] = (),
    ) -> ResultT_co:
        """Return the result of ``run``; ``live`` provides the types of the messages."""
        ...
