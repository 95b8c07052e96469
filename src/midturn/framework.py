"""What midturn needs of an agent framework. :mod:`midturn.autogen.adapter` is the one there is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from midturn.questions import Waiting
    from midturn.record.codec import Json
    from midturn.record.rows import Effect, What
    from midturn.tools import CallInDoubt, tool

EventT_co = TypeVar("EventT_co", covariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Cancellation(Protocol):
    """The part of a framework's cancellation token that is used here."""

    def is_cancelled(self) -> bool:
        """Whether it was cancelled."""
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
        """Its arguments with those that a human wants otherwise."""
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
        """Whether what happens now has happened before, in an attempt that was interrupted."""
        ...

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """What came of a call: recorded, or made now with these arguments and then recorded."""
        ...

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        """The arguments with which a human lets something be done, or why he does not."""
        ...

    async def fail(self, error: Exception) -> NoReturn:
        """End the turn with an error, from inside it."""
        ...

    async def ask(self, request: Request, question: str) -> str:
        """What a human says to a question; if nobody has said it yet, this does not return and the turn waits."""
        ...

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """What is to be seen at a path; it is recorded with the next call."""
        ...


class View(Protocol):
    """A captured state, with the verbs of the framework's own to make another one of it."""

    @property
    def tree(self) -> Json:
        """The state as JSON."""
        ...

    @property
    def touched(self) -> frozenset[str]:
        """The agents and tools that the verbs have given other names, taken away, added or altered."""
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
        """One for another instance, of which it knows nothing yet."""
        ...

    def is_live(self, what: object) -> bool:
        """Whether this has a state to save and load, as agents and teams have, and is not something that builds one."""
        ...

    async def renew(self, live: Any) -> None:
        """Make an instance as good as a fresh one after an aborted run, but for its state."""
        ...

    async def prepare(self, live: Any) -> list[str]:
        """Make an instance ready for its next turn; what had to be repaired in its state for that."""
        ...

    async def capture(self, live: Any) -> Any:
        """The state of an instance that is not running: the framework's own under "state", what it lacks beside it.

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
        """How an instance was built, in JSON that people can read: prompts, tools, participants; no secrets."""
        ...

    def view(self, tree: Json) -> View:
        """A captured state as a migration sees it."""
        ...

    async def fill(self, live: Any, tree: Json) -> Json:
        """A migrated state with all that its new parts have in an instance that was just built.

        Raises:
            StateInvalid: the instance has no such parts.
        """
        ...

    def mentions(self, tree: Json, tool: str) -> int:
        """How many calls of a tool there are in the conversation."""
        ...

    def accept(self, task: Any) -> list[Json] | None:
        """A task as messages; ``None`` for none.

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
        """What makes two messages of two tasks the same: all but ids and times."""
        ...

    def stream(
        self, live: Any, task: Sequence[Json] | None, calls: Calls, effects: Mapping[str, tool]
    ) -> AsyncGenerator[EventT_co | Outcome, None]:
        """Run a turn: its events, then its outcome. Closing the generator ends the run at once.

        Every call inside is made through ``calls``; ``effects`` says of tools, by their names, what they do.
        """
        ...

    def result(
        self, live: Any, *, turn: int, checkpoint: int, outcome: Outcome, waiting: Waiting | None = None
    ) -> ResultT_co:
        """What ``run`` returns; ``live`` knows the types of its messages."""
        ...
