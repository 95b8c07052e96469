"""Session ids in paths. An id is any text, also with slashes, dots and percent signs, and is one segment of a path."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from starlette.convertors import Convertor, register_url_convertor

if TYPE_CHECKING:
    from starlette.types import Scope


def segment(session: str) -> str:
    """Return the segment of a path that stands for a session id.

    Clients remove the segments ``.`` and ``..`` from a path, so these ids, the empty id and those that begin with ``~``
    get a ``~`` before them. A dot that begins an ending is escaped, so that ``.json`` after an id is never part of it.
    """
    marked = f"~{session}" if session in ("", ".", "..") or session.startswith("~") else session
    return quote(marked, safe="").replace(".json", "%2Ejson")


def session_of(found: str) -> str:
    """Return the session id that a segment of a path stands for."""
    return unquote(found).removeprefix("~")


class SessionConvertor(Convertor[str]):
    """The part ``{session:session}`` of a route."""

    regex = "[^/]+?"

    def convert(self, value: str) -> str:
        return session_of(value)

    def to_string(self, value: str) -> str:
        return segment(value)


register_url_convertor("session", SessionConvertor())
SESSION = "{session:session}"
"""The segment of a route that is a session id, which the route gets as the argument ``session``."""
BLUEPRINT = "{blueprint:session}"
"""The segment of a route that is the name of a blueprint: any text, too."""


def escaped(scope: Scope) -> Scope:
    """Return a request with its path as it was sent, so that an escaped slash is part of a segment."""
    raw = scope.get("raw_path")
    return {**scope, "path": quote(scope["path"]) if raw is None else raw.decode("ascii", "replace")}
