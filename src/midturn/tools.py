"""Tools: the marks that declare a tool's effect, and the functions that a tool can call while it runs."""

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
    """A tool's call that was interrupted, so it is not known whether it took effect. ``reconcile`` gets it."""

    session: str
    turn: int
    agent: str
    """The name of the agent that made the call."""
    tool: str
    arguments: Mapping[str, Json]
    key: str
    """The key that :func:`midturn.call_key` returned inside the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class tool:  # noqa: N801 - it is used as a decorator
    """Declaration of what a tool does to the world.

    Use it as a decorator of the tool's function, or as a value in ``Blueprint(effects={...})``. With ``approval``,
    midturn asks a human before the tool acts. ``reconcile`` is a function that gets a :class:`CallInDoubt`. If that
    call took effect, the function returns what the tool would have returned, otherwise ``None``.
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
        """Mark a function with this declaration, and return the function."""
        if not callable(function):
            raise StateInvalid(f"must decorate a function, not a {type(function).__name__}", path="midturn.tool")
        setattr(function, MARK, self)
        return function


def marked(function: Any) -> tool | None:
    """Return the declaration that a function is marked with, if there is one."""
    while isinstance(function, partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType] - of whatever type
    found = getattr(function, MARK, None)
    return found if isinstance(found, tool) else None


def declared(effects: Mapping[str, Effect | tool]) -> dict[str, tool]:
    """Return the declarations of a blueprint's tools, by the names of the tools."""
    found: dict[str, tool] = {}
    for name, effect in effects.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise StateInvalid("must have the names of tools as its keys", path="effects")
        found[name] = effect if isinstance(effect, tool) else tool(effect=effect)
    return found


class Statements(Protocol):
    """The part of the store's transaction that a tool can use."""

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows, if it has any."""
        ...


@dataclass(frozen=True, slots=True)
class Current:
    """The call that is running."""

    key: str
    transaction: Transaction | None


_CURRENT: ContextVar[Current | None] = ContextVar("midturn_call", default=None)


def call_key() -> str:
    """Return, inside a tool, the key of the running call: the same whenever this call is repeated, and unique to it.

    Pass it as the idempotency key to the service that the tool calls.

    Raises:
        LookupError: no session is calling a tool here.
    """
    current = _CURRENT.get()
    if current is None:
        raise LookupError("midturn.call_key() works only inside a tool that a session calls")
    return current.key


def transaction() -> Statements:
    """Return, inside a tool with ``effect="transactional"``, the store's own transaction.

    The tool runs its statements in it: ``await midturn.transaction().execute("UPDATE ...", (...))``. The statements
    take effect together with the record of the call, or not at all.

    Raises:
        LookupError: no transactional tool is running here.
    """
    current = _CURRENT.get()
    if current is None or current.transaction is None:
        raise LookupError('midturn.transaction() works only inside a tool with effect="transactional"')
    return current.transaction


def is_inside() -> bool:
    """Return whether a call is running; everything that it calls belongs to it."""
    return _CURRENT.get() is not None


@contextmanager
def inside(key: str, transaction: Transaction | None = None) -> Generator[None]:
    """Run the block as a call with this key and, if given, this transaction."""
    token = _CURRENT.set(Current(key, transaction))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def needs_journal(name: str, effect: Effect, *, approval: bool, session: str | None = None) -> StateInvalid | None:
    """Return the error for a tool that cannot be called where no call is recorded; ``None`` if it can be called."""
    if approval or effect == "transactional":
        return without_journal("needs a journal", name, session)
    if effect == "unsafe":
        why = 'is unsafe, and a crash would repeat it: declare effect="read" or effect="idempotent", or record calls'
        return without_journal(why, name, session)
    return None


def without_journal(why: str, path: str, session: str | None = None) -> StateInvalid:
    """Return the error for a call that needs a journal."""
    hint = "Record calls: session(..., durability='call')."
    return StateInvalid(why, path=path, session=session, hint=hint)


def inside_a_tool(request: Request, session: str) -> StateInvalid:
    """Return the error for a question to a human inside a call; a call cannot wait for an answer."""
    what = "a human cannot be asked inside a tool; put the agent in an AgentTool or a TeamTool"
    return StateInvalid(what, path=request.name or request.path, session=session)


async def human(prompt: str, cancellation_token: object = None) -> NoReturn:
    """Ask a human, as ``input_func`` of AutoGen's ``UserProxyAgent``; the turn waits until somebody calls ``answer()``.

    Raises:
        LookupError: no session runs the agent, so nobody could ever answer.
    """
    _ = prompt, cancellation_token
    raise LookupError("midturn.human() needs a session that records its calls: store.session(..., durability='call')")
