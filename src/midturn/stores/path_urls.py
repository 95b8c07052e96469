"""Parsing the URLs of stores on this machine: ``sqlite://``, ``file://`` and ``memory://``."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

from midturn.errors import InvalidArgument

SQLITE = "sqlite:///relative.db or sqlite:////absolute/path.db"
FILE = "file:///absolute/directory or file://./relative"
# The two differ: three slashes are relative in SQLite URLs everywhere, and absolute in file URLs everywhere.

NO_OPTIONS = "it has lease=SECONDS and compress=zstd or none; Postgres and Redis have more"
_LOST_OPTION = re.compile("&[a-z_]+=")
"""Matches an option that no ? separates from the path."""
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


def parse(scheme: str, rest: str) -> Path | None:
    """Return the path that follows ``scheme://``; ``None`` for ``memory://``.

    No error repeats the part before an @, which may be a password.

    Raises:
        InvalidArgument: the URL is wrong.
    """
    place, _, query = rest.partition("?")
    if _LOST_OPTION.search(place):
        raise InvalidArgument("write a ? before the first option of the URL, and an & in a name as %26", path="url")
    match scheme:
        case "sqlite":
            text = _sqlite(place)
        case "file":
            text = _file(place)
        case _:
            text = ""
            if place:
                raise InvalidArgument("a store in memory has no name or path; write memory://", path="url")
    if "#" in rest:
        raise InvalidArgument("the URL of a store has no part after a #; write a # in a name as %23", path="url")
    if options := [option.partition("=")[0] for option in query.split("&") if option]:
        raise InvalidArgument(f"this store has no option {', '.join(options)}; {NO_OPTIONS}", path="url")
    return _checked(_decoded(text), scheme) if text else None


def bare_path(text: str) -> Path:
    """Return a path without a scheme, which is a SQLite file. No character of it is an escape.

    Raises:
        InvalidArgument: this is no path of a file, or probably meant as something else.
    """
    if "?" in text:
        wanted = "write it as a URL: sqlite:///file.db?option=value, or %3F for a ? in a name"
        raise InvalidArgument(f"a path takes no options after a ?; {wanted}", path="url")
    return _checked(text, "sqlite")


def _sqlite(place: str) -> str:
    if place == ":memory:":
        raise _in_memory()
    if place.strip("/") == "":
        raise InvalidArgument(f"the URL names no file; write {SQLITE}, or memory:// for a store in memory", path="url")
    if not place.startswith("/"):
        raise InvalidArgument(
            f"sqlite:// takes no host, user or password, and a path needs its own /; write {SQLITE}", path="url"
        )
    return place.removeprefix("/")


def _file(place: str) -> str:
    if place.strip("/") == "":
        raise InvalidArgument(f"the URL names no directory; write {FILE}", path="url")
    if place.startswith("/"):
        return "/" + place.lstrip("/")  # also with four slashes, as for SQLite
    if place.partition("/")[0] not in (".", ".."):
        raise InvalidArgument(f"file:// takes no host, user or password; write {FILE}", path="url")
    return place


def _decoded(text: str) -> str:
    if found := _BAD_ESCAPE.search(text):
        bad = text[found.start() :][:3]
        raise InvalidArgument(f"{bad!r} in the URL is not an escape; write a % in a name as %25", path="url")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidArgument(
            "the escapes in the URL are not UTF-8; write an ä as %C3%A4, or as it is", path="url"
        ) from None


def _checked(text: str, scheme: str) -> Path:
    if "\0" in text:
        raise InvalidArgument("the URL has a NUL character; no file and no server can have such a name", path="url")
    if text.lstrip("/").startswith("~"):
        raise InvalidArgument(
            "midturn does not replace a ~; write the whole path, or ./~ for a name with a ~", path="url"
        )
    if scheme == "sqlite":
        if text.endswith("/"):
            raise InvalidArgument(
                "a path that ends with / is a directory, and a SQLite store is a file; name a file", path="url"
            )
        if Path(text).name == ":memory:":
            raise _in_memory()
    return Path(text)


def _in_memory() -> InvalidArgument:
    return InvalidArgument(":memory: is not a file; write memory:// for a store in memory", path="url")
