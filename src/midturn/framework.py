"""What midturn needs of an agent framework. :mod:`midturn.autogen.adapter` is the one there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from midturn.questions import Waiting
    from midturn.record.codec import Json
    from midturn.record.rows import Effect, What
    from midturn.stopping import Stop
    from midturn.tools import CallInDoubt, tool

EventT_co = TypeVar("EventT_co", covariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Cancellation(Protocol):
    """The part of a framework's cancellation token that is used here."""

    def is_cancelled(self) -> bool:
        """Say whether it was cancelled."""
        ...

    def add_callback(self, callback: Callable[[], Any]) -> None:
        """Call back when it is cancelled."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came out of a turn, as JSON."""

    messages: Sequence[Json]
    stop_reason: str | None = None
    usage: tuple[int, int] = (0, 0)
    """Prompt and completion tokens."""
    native: Any = None
    """The framework's own result, if the turn ran in this process; the events up to now, if it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What an instance is like that a state was loaded into."""

    captured: Any
    """Its state, captured again."""
    gained: Sequence[str]
    """Where something of a user's own has more than it was given: what is new in it, or was lost from the state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A call that an agent is about to make."""

    path: str
    """Who calls what, by names that are the same in every process: ``participants/ann/model_client``."""
    agent: str
    """The part of the path that names the agent."""
    what: What
    key: str
    """A digest of what is asked."""
    name: str = ""
    """The tool's name."""
    arguments: Any = None
    effect: Effect = "read"
    approval: bool = False
    reconcile: Callable[[CallInDoubt], Any] | None = None
    told: Callable[[str, bool], dict[str, Any]] | None = None
    """The result that stands for what a human said became of the call; the flag says that it failed."""

    def changed(self, arguments: dict[str, Any] | None) -> dict[str, Any]:
        """Return its arguments with those that a human has changed."""
        mine: dict[str, Any] = self.arguments or {}
        return mine | (arguments or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a call."""

    value: dict[str, Any]
    """As JSON."""
    native: Any = None
    """As the framework has it; ``None`` if it was recorded earlier."""
    failed: bool = False
    """Whether a tool says that it failed."""
    starts: Sequence[str] = ()
    """The unsafe calls of tools that begin with it: the key of each, a space, and the call for people to read."""
    spent: float | None = None
    """How long the turn had run until then, if it was recorded earlier."""


class Calls(Protocol):
    """What a framework does with the calls inside a turn: each is made through this, and made once."""

    @property
    def replaying(self) -> bool:
        """Say whether what happens now has happened before, in an interrupted attempt."""
        ...

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """Return the recorded answer of a call; make the call with these arguments and record it if there is none."""
        ...

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        """Ask a human for approval; return the arguments to use, or why it was denied."""
        ...

    async def fail(self, error: Exception) -> NoReturn:
        """End the turn with an error, from inside it."""
        ...

    async def ask(self, request: Request, question: str) -> str:
        """Return what a human answered to a question; without an answer this does not return, and the turn waits."""
        ...

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """Return the tools that are listed at a path; they are recorded with the next call."""
        ...


class View(Protocol):
    """A captured state, with the verbs of the framework's own to make another one of it."""

    @property
    def tree(self) -> Json:
        """Return the state as JSON."""
        ...

    @property
    def touched(self) -> frozenset[str]:
        """Return the agents and tools that the verbs have renamed, removed, added or changed."""
        ...

    def check(self) -> None:
        """See that it is a state.

        Raises:
            StateInvalid: it is not.
        """
        ...


class Framework(Protocol[EventT_co, ResultT_co]):
    """How agents of one framework are run, captured and restored. ``live`` is an agent or a team."""

    def another(self) -> Framework[EventT_co, ResultT_co]:
        """Return a new one for another instance, of which it knows nothing yet."""
        ...

    def is_live(self, what: object) -> bool:
        """Say whether this is an agent or a team with a state to save and load, and not something that builds one."""
        ...

    async def renew(self, live: Any) -> None:
        """Make an instance as good as a fresh one after an aborted run, but for its state."""
        ...

    async def prepare(self, live: Any) -> list[str]:
        """Make an instance ready for its next turn; what had to be repaired in its state for that."""
        ...

    async def capture(self, live: Any) -> Any:
        """Return the state of an instance that is not running: the framework's own under "state", the rest beside it.

        Raises:
            StateInvalid: it cannot be captured now.
        """
        ...

    async def fit(self, live: Any, tree: Any) -> Any:
        """Check a whole captured state against an instance, which keeps its own; the plan by which to load it.

        Raises:
            StateInvalid: the state does not fit.
        """
        ...

    async def load(self, live: Any, plan: Any) -> Loaded:
        """Give an instance the state that a plan is for, and see that it has it.

        Raises:
            StateInvalid: something in the instance refused it after all; it must not be used.
        """
        ...

    async def fingerprint(self, live: Any) -> dict[str, Json]:
        """Return how an instance was built, in JSON that people can read: prompts, tools, participants; no secrets."""
        ...

    def view(self, tree: Json) -> View:
        """Return a captured state as a migration sees it."""
        ...

    async def fill(self, live: Any, tree: Json) -> Json:
        """Return a migrated state, with the new parts filled in from an instance that was just built.

        Raises:
            StateInvalid: the instance has no such parts.
        """
        ...

    def mentions(self, tree: Json, tool: str) -> int:
        """Count the calls of a tool in the conversation."""
        ...

    def accept(self, task: Any) -> list[Json] | None:
        """Return a task as messages; ``None`` for none.

        Raises:
            StateInvalid: it is not a task.
        """
        ...

    def check(self, live: Any, task: Sequence[Json]) -> None:
        """See that an accepted task can be read back for this instance.

        Raises:
            StateInvalid: it cannot.
        """
        ...

    def identity(self, message: Json) -> Json:
        """Return what makes two messages of two tasks the same: all but ids and times."""
        ...

    def stream(
        self,
        live: Any,
        task: Sequence[Json] | None,
        calls: Calls,
        effects: Mapping[str, tool],
        stops: Sequence[Stop],
    ) -> AsyncGenerator[EventT_co | Outcome, None]:
        """Run a turn and yield its events, then its outcome.

        The first of the ``stops`` that is done ends the run at once, and its error is raised here. Closing the
        generator ends the run too. Every call inside is made through ``calls``; ``effects`` has what the blueprint
        declares about tools, by their names.
        """
        ...

    def result(
        self, live: Any, *, turn: int, checkpoint: int, outcome: Outcome, waiting: Waiting | None = None
    ) -> ResultT_co:
        """Return the result of ``run``; ``live`` knows the types of its messages."""
        ...
