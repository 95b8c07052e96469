"""Parsing the URLs of stores on this machine: ``sqlite://``, ``file://`` and ``memory://``."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

from midturn.errors import StoreUnavailable

SQLITE = "sqlite:///relative.db or sqlite:////absolute/path.db"
FILE = "file:///absolute/directory or file://./relative"
# The two differ: three slashes are relative in SQLite URLs everywhere, and absolute in file URLs everywhere.

NO_OPTIONS = "Postgres and Redis have some"
_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


def parse(scheme: str, rest: str) -> Path | None:
    """Return the path that follows ``scheme://``; ``None`` for ``memory://``.

    No error repeats the part before an @, which may be a password.

    Raises:
        StoreUnavailable: the URL is wrong.
    """
    place, _, query = rest.partition("?")
    match scheme:
        case "sqlite":
            text = _sqlite(place)
        case "file":
            text = _file(place)
        case _:
            text = ""
            if place:
                raise StoreUnavailable("a store in memory has no name or path; write memory://")
    if "#" in rest:
        raise StoreUnavailable("the URL of a store has no part after a #; write a # in a name as %23")
    if options := [option.partition("=")[0] for option in query.split("&") if option]:
        raise StoreUnavailable(f"this store has no option {', '.join(options)}; {NO_OPTIONS}")
    return _checked(_decoded(text), scheme) if text else None


def bare_path(text: str) -> Path:
    """Return a path without a scheme, which is a SQLite file. No character of it is an escape.

    Raises:
        StoreUnavailable: this is no path of a file, or probably meant as something else.
    """
    if "?" in text:
        wanted = "write it as a URL: sqlite:///file.db?option=value, or %3F for a ? in a name"
        raise StoreUnavailable(f"a path takes no options after a ?; {wanted}")
    return _checked(text, "sqlite")


def _sqlite(place: str) -> str:
    if place == ":memory:":
        raise _in_memory()
    if place.strip("/") == "":
        raise StoreUnavailable(f"the URL names no file; write {SQLITE}, or memory:// for a store in memory")
    if not place.startswith("/"):
        raise StoreUnavailable(f"sqlite:// takes no host, user or password, and a path needs its own /; write {SQLITE}")
    return place.removeprefix("/")


def _file(place: str) -> str:
    if place.strip("/") == "":
        raise StoreUnavailable(f"the URL names no directory; write {FILE}")
    if place.startswith("/"):
        return "/" + place.lstrip("/")  # also with four slashes, as for SQLite
    if place.partition("/")[0] not in (".", ".."):
        raise StoreUnavailable(f"file:// takes no host, user or password; write {FILE}")
    return place


def _decoded(text: str) -> str:
    if found := _BAD_ESCAPE.search(text):
        bad = text[found.start() :][:3]
        raise StoreUnavailable(f"{bad!r} in the URL is not an escape; write a % in a name as %25")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise StoreUnavailable("the escapes in the URL are not UTF-8; write an ä as %C3%A4, or as it is") from None


def _checked(text: str, scheme: str) -> Path:
    if "\0" in text:
        raise StoreUnavailable("the URL has a NUL character; no file and no server can have such a name")
    if text.lstrip("/").startswith("~"):
        raise StoreUnavailable("midturn does not replace a ~; write the whole path, or ./~ for a name with a ~")
    if scheme == "sqlite":
        if text.endswith("/"):
            raise StoreUnavailable("a path that ends with / is a directory, and a SQLite store is a file; name a file")
        if Path(text).name == ":memory:":
            raise _in_memory()
    return Path(text)


def _in_memory() -> StoreUnavailable:
    return StoreUnavailable(":memory: is not a file; write memory:// for a store in memory")
