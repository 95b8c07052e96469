"""Keeping passwords out of what people see: a URL that does not show itself, and errors without those of drivers."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Generator

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=://)")
_LOGIN = re.compile(
    r"\b((?:rediss?|postgres(?:ql)?)(?:\+[a-z]+)?:/*[^\s:@/]*|[a-z][a-z0-9+.-]*://[^\s:@/]*):\S*@", re.IGNORECASE
)
_OPTION = re.compile(r"\b([a-z_]*password=)[^&\s]+", re.IGNORECASE)


@final
class Secret:
    """A text that is never shown: only :meth:`reveal` returns it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled; open the store again in the other process")


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, which can be shown; an empty string if the URL has none."""
    found = _SCHEME.match(url)
    return found[0] if found else ""


def hidden(text: str) -> str:
    """Return a text with *** in place of the passwords of URLs in it."""
    return _OPTION.sub(r"\1***", _LOGIN.sub(r"\1:***@", text))


@contextmanager
def unchained() -> Generator[None]:
    """Raise errors without those that led to them: an error of a driver may quote the URL with its password.

    ``raise ... from None`` is not enough, since it leaves the error of the driver in ``__context__``.
    """
    handled = sys.exception()
    try:
        yield
    except BaseException as error:
        error.__cause__ = None
        error.__context__ = handled  # what the caller was handling is not ours to hide
        error.__suppress_context__ = False
        raise
