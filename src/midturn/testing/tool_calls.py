"""Calling a tool in a unit test, without a session."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from midturn.tools import inside

if TYPE_CHECKING:
    from collections.abc import Generator

    from midturn.tools import Statements


@contextmanager
def tool_call(key: str = "call-key", *, transaction: Statements | None = None) -> Generator[None]:
    """Run the block as a call of a tool: in it, ``midturn.call_key()`` returns ``key``.

    ``transaction`` is what ``midturn.transaction()`` returns; without it, the block is not a transactional call::

        with tool_call("refund-1"):
            await refund("A1", 40.0)
    """
    with inside(key, transaction):
        yield
