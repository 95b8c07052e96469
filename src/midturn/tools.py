"""Tools: the marks that declare a tool's effect, and the functions that a tool can call while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, get_args, overload

from midturn.errors import InvalidArgument
from midturn.record.rows import Effect

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from midturn.framework import Request
    from midturn.record.codec import Json

MARK = "__midturn_tool__"

ToolT = TypeVar("ToolT")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInDoubt:
    """An interrupted call of a tool: nobody knows whether the call took effect. ``reconcile`` gets this object."""

    session: str
    turn: int
    agent: str
    """The name of the agent that made the call."""
    tool: str
    arguments: Mapping[str, Json]
    key: str
    """The key that :func:`midturn.call_key` returned inside the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Declaration of what a tool does to the world, as :func:`midturn.tool` makes it."""

    effect: Effect = "unsafe"
    approval: bool = False
    reconcile: Callable[[CallInDoubt], Any] | None = None

    def __post_init__(self) -> None:
        if self.effect not in get_args(Effect):
            raise InvalidArgument(f"is {self.effect!r}; it can be {', '.join(get_args(Effect))}", path="effect")
        if not isinstance(self.approval, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise InvalidArgument(f"must be True or False, not {self.approval!r}", path="approval")
        if self.reconcile is not None and not callable(self.reconcile):
            raise InvalidArgument("must be a function", path="reconcile")

    def __call__(self, marks: ToolT) -> ToolT:
        """Mark a function, or a tool made of one, with this declaration; return what was marked."""
        if not callable(marks) and not hasattr(marks, "run_json"):
            kind = type(marks).__name__
            raise InvalidArgument(f"must decorate a function or a tool, not a {kind}", path="midturn.tool")
        setattr(marks, MARK, self)
        return marks


@overload
def tool(marks: ToolT, /) -> ToolT: ...
@overload
def tool(
    *, effect: Effect = "unsafe", approval: bool = False, reconcile: Callable[[CallInDoubt], Any] | None = None
) -> Declaration: ...
def tool(
    marks: Any = None,
    /,
    *,
    effect: Effect = "unsafe",
    approval: bool = False,
    reconcile: Callable[[CallInDoubt], Any] | None = None,
) -> Any:
    """Declare what a tool does to the world.

    Use it as a decorator of the tool's function, on a ``FunctionTool``, or as a value in ``Blueprint(effects={...})``.
    With ``approval``, midturn asks a human before the tool acts. ``reconcile`` is a function that gets a
    :class:`CallInDoubt`. If that call took effect, the function returns what the tool would have returned, otherwise
    ``None``.

    Raises:
        InvalidArgument: there is no such effect, ``reconcile`` is not a function, or this decorates something else.
    """
    declaration = Declaration(effect=effect, approval=approval, reconcile=reconcile)
    return declaration if marks is None else declaration(marks)


def marked(tool: Any) -> Declaration | None:
    """Return the declaration that a tool or a function is marked with, if there is one."""
    found = getattr(without_partials(tool), MARK, None)
    return found if isinstance(found, Declaration) else None


def without_partials(function: Any) -> Any:
    """Return the function that a partial was made of; any other object as it is."""
    while isinstance(function, partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType] - of whatever type
    return function


def declared(effects: Mapping[str, Effect | Declaration]) -> dict[str, Declaration]:
    """Return the declarations of a blueprint's tools, by the names of the tools."""
    if not isinstance(effects, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
        raise InvalidArgument(f"must be a mapping of tools to effects, not {type(effects).__name__}", path="effects")
    found: dict[str, Declaration] = {}
    for name, effect in effects.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise InvalidArgument("must have the names of tools as its keys", path="effects")
        found[name] = effect if isinstance(effect, Declaration) else Declaration(effect=effect)
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
    transaction: Statements | None
    calls: object
    """The calls of the turn that the call belongs to."""
    outer: Current | None
    """The call of another turn, inside which this turn runs."""


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


def is_inside(calls: object) -> bool:
    """Return whether one of these ``calls`` is running; everything that it calls belongs to it.

    A session may run inside a tool of another session. Its turn has calls of its own.
    """
    current = _CURRENT.get()
    while current is not None and current.calls is not calls:
        current = current.outer
    return current is not None


@contextmanager
def inside(key: str, transaction: Statements | None = None, *, calls: object = None) -> Generator[None]:
    """Run the block as one of these ``calls``, with this key and, if given, this transaction."""
    token = _CURRENT.set(Current(key, transaction, calls, _CURRENT.get()))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def needs_journal(name: str, effect: Effect, *, approval: bool, session: str | None = None) -> InvalidArgument | None:
    """Return the error for a tool that cannot be called where no call is recorded; ``None`` if it can be called."""
    if approval or effect == "transactional":
        return without_journal("needs a journal", name, session)
    if effect == "unsafe":
        why = 'is unsafe, and a crash would repeat it: declare effect="read" or effect="idempotent", or record calls'
        return without_journal(why, name, session)
    return None


def without_journal(why: str, path: str, session: str | None = None) -> InvalidArgument:
    """Return the error for a call that needs a journal."""
    hint = "Record calls: session(..., durability='call')."
    return InvalidArgument(why, path=path, session=session, hint=hint)


def inside_a_tool(request: Request, session: str) -> InvalidArgument:
    """Return the error for a question to a human inside a call; a call cannot wait for an answer."""
    what = "a human cannot be asked inside a tool; put the agent in an AgentTool or a TeamTool"
    return InvalidArgument(what, path=request.name or request.path, session=session)


async def human(prompt: str, cancellation_token: object = None) -> NoReturn:
    """Ask a human, as ``input_func`` of AutoGen's ``UserProxyAgent``; the turn waits until somebody calls ``answer()``.

    Raises:
        LookupError: no session runs the agent, so nobody could ever answer.
    """
    _ = prompt, cancellation_token
    raise LookupError("midturn.human() needs a session that records its calls: store.session(..., durability='call')")
