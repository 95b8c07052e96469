"""Tools: what a tool says of itself, and what it can ask about the call that it is in."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, get_args

from midturn.errors import StateInvalid
from midturn.record.rows import Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from midturn.framework import Request
    from midturn.record.codec import Json
    from midturn.store import Transaction

MARK = "__midturn_tool__"

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInDoubt:
    """A call of a tool that was interrupted, so that nobody knows whether it took effect; ``reconcile`` gets it."""

    session: str
    turn: int
    agent: str
    """The path of the agent that called: ``participants/ann``."""
    tool: str
    arguments: Mapping[str, Json]
    key: str
    """What :func:`midturn.call_key` returned inside the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class tool:  # noqa: N801 - it is used as a decorator
    """Say what a tool does to the world: a decorator for the function, or a value in ``Blueprint(effects={...})``.

    With ``approval``, a human is asked before the tool acts. ``reconcile`` gets a :class:`CallInDoubt`. It returns what
    the tool would have returned if the call took effect, and ``None`` if it did not.
    """

    effect: Effect = "unsafe"
    approval: bool = False
    reconcile: Callable[[CallInDoubt], Any] | None = None

    def __post_init__(self) -> None:
        if self.effect not in get_args(Effect):
            raise StateInvalid(f"is {self.effect!r}; it can be {', '.join(get_args(Effect))}", path="effect")
        if self.reconcile is not None and not callable(self.reconcile):
            raise StateInvalid("must be a function", path="reconcile")

    def __call__(self, function: F) -> F:
        """Mark a function, and return it."""
        if not callable(function):
            raise StateInvalid(f"decorates a function, not a {type(function).__name__}", path="midturn.tool")
        setattr(function, MARK, self)
        return function


def marked(function: Any) -> tool | None:
    """Return what a function was marked with."""
    while isinstance(function, partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType] - of whatever type
    found = getattr(function, MARK, None)
    return found if isinstance(found, tool) else None


def declared(effects: Mapping[str, Effect | tool]) -> dict[str, tool]:
    """Return what a blueprint says of its tools, by their names."""
    found: dict[str, tool] = {}
    for name, effect in effects.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise StateInvalid("has a tool's name for each effect", path="effects")
        found[name] = effect if isinstance(effect, tool) else tool(effect=effect)
    return found


class Statements(Protocol):
    """What a tool can do with the store's transaction."""

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows, if it has any."""
        ...


@dataclass(frozen=True, slots=True)
class Current:
    """The call that is being made."""

    key: str
    transaction: Transaction | None


_CURRENT: ContextVar[Current | None] = ContextVar("midturn_call", default=None)


def call_key() -> str:
    """Return, inside a tool, a key that is the same whenever this call is repeated, and that no other call has.

    Give it to whatever the tool calls as its idempotency key.

    Raises:
        LookupError: no tool is being called by a session.
    """
    current = _CURRENT.get()
    if current is None:
        raise LookupError("midturn.call_key() is for the inside of a tool that a session calls")
    return current.key


def transaction() -> Statements:
    """Return, inside a tool with ``effect="transactional"``, the store's own transaction for statements of the tool.

    ``await midturn.transaction().execute("UPDATE ...", (...))``. They take effect together with the record of the
    call, or not at all.

    Raises:
        LookupError: there is none here.
    """
    current = _CURRENT.get()
    if current is None or current.transaction is None:
        raise LookupError('midturn.transaction() is for the inside of a tool with effect="transactional"')
    return current.transaction


def is_inside() -> bool:
    """Say whether a call is being made; whatever is called inside it belongs to it."""
    return _CURRENT.get() is not None


@contextmanager
def inside(key: str, transaction: Transaction | None = None) -> Generator[None]:
    """Make a call that has this key, and perhaps a transaction."""
    token = _CURRENT.set(Current(key, transaction))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def inside_a_tool(request: Request, session: str) -> StateInvalid:
    """Return the error for a human who would be asked inside a call, which cannot wait."""
    what = "a human cannot be asked inside a tool; put the agent in an AgentTool or a TeamTool"
    return StateInvalid(what, path=request.name or request.path, session=session)


async def human(prompt: str, cancellation_token: object = None) -> NoReturn:
    """Ask a human, as ``input_func`` of AutoGen's ``UserProxyAgent``; the turn waits until somebody calls ``answer()``.

    Raises:
        LookupError: no session runs it, so nobody could ever answer.
    """
    _ = prompt, cancellation_token
    raise LookupError("midturn.human() needs a session that records its calls: store.session(..., durability='call')")
