"""What a tool can ask about the call that it is in."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from midturn.errors import StateInvalid

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from midturn.framework import Request
    from midturn.store import Transaction


class Statements(Protocol):
    """What a tool can do with the store's transaction."""

    async def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement; its rows, if it has any."""
        ...


@dataclass(frozen=True, slots=True)
class Current:
    """The call that is being made."""

    key: str
    transaction: Transaction | None


_CURRENT: ContextVar[Current | None] = ContextVar("midturn_call", default=None)


def call_key() -> str:
    """Inside a tool: a key that is the same whenever this call is repeated, and no other call has.

    Give it to whatever the tool calls as its idempotency key.

    Raises:
        LookupError: no tool is being called by a session.
    """
    current = _CURRENT.get()
    if current is None:
        raise LookupError("midturn.call_key() is for the inside of a tool that a session calls")
    return current.key


def transaction() -> Statements:
    """Inside a tool with ``effect="transactional"``: the store's own transaction, for statements of the tool's.

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
    """Whether a call is being made; whatever is called inside it belongs to it."""
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
    """For a human who would be asked inside a call, which cannot wait."""
    what = "a human cannot be asked inside a tool; put the agent in an AgentTool or a TeamTool"
    return StateInvalid(what, path=request.name or request.path, session=session)


async def human(prompt: str, cancellation_token: object = None) -> NoReturn:
    """An ``input_func`` for AutoGen's ``UserProxyAgent``: the turn waits until somebody calls ``answer()``.

    Raises:
        LookupError: no session runs it, so nobody could ever answer.
    """
    _ = prompt, cancellation_token
    raise LookupError("midturn.human() needs a session that records its calls: store.session(..., durability='call')")
