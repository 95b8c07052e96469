"""What a tool can ask about the call that it is in."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Generator

_KEY: ContextVar[str | None] = ContextVar("leftoff_call_key", default=None)


def call_key() -> str:
    """Inside a tool: a key that is the same whenever this call is repeated, and no other call has.

    Give it to whatever the tool calls as its idempotency key.

    Raises:
        LookupError: no tool is being called by a session.
    """
    key = _KEY.get()
    if key is None:
        raise LookupError("leftoff.call_key() is for the inside of a tool that a session calls")
    return key


def is_inside() -> bool:
    """Whether a call is being made; whatever is called inside it belongs to it."""
    return _KEY.get() is not None


@contextmanager
def inside(key: str) -> Generator[None]:
    """Make a call that has this key."""
    token = _KEY.set(key)
    try:
        yield
    finally:
        _KEY.reset(token)


async def human(prompt: str, cancellation_token: object = None) -> NoReturn:
    """An ``input_func`` for AutoGen's ``UserProxyAgent``: the turn waits until somebody calls ``answer()``.

    Raises:
        LookupError: no session runs it, so nobody could ever answer.
    """
    _ = prompt, cancellation_token
    raise LookupError("leftoff.human() needs a session that records its calls: store.session(..., durability='call')")
