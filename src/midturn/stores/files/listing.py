"""What the end of a session's file says of it, for listings."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from midturn.errors import UnknownVersion
from midturn.stores.files.lines import Damaged, name_of, opened, read_change, read_header

if TYPE_CHECKING:
    from pathlib import Path

    from midturn.record.head import Head

_WINDOW = 8192  # more than the longest header
_log = logging.getLogger(__name__)


def glance(path: Path) -> Head | None:
    """The head that the last readable line of a file tells, reading no more than is needed; ``None`` if there is none.

    For listings, hence without the session's lock: nobody holds up all others.
    """
    try:
        with opened(path, os.O_RDONLY) as file:
            return _latest(file, path.name)
    except FileNotFoundError:
        return None
    except (Damaged, UnknownVersion) as error:
        _log.warning("%s is left out of the list of sessions: %s", path, error)
        return None


def _latest(file: int, name: str) -> Head | None:
    start = os.pread(file, _WINDOW, 0)
    header = start[: start.find(b"\n") + 1]
    if not header and len(start) < _WINDOW:
        return None
    session, created = read_header(header)
    if name_of(session) != name:
        raise Damaged(f"it is the file of session {session!r}")
    first = len(header) - 1
    size = begin = os.fstat(file).st_size
    window = _WINDOW
    lines: list[bytes] = []
    while begin > first:
        # A line is complete between two newlines, and the header's is the first.
        begin = max(first, size - window)
        lines = os.pread(file, size - begin, begin).split(b"\n")[1:-1]
        for line in reversed(lines):
            with suppress(Damaged):
                return read_change(line + b"\n").head(session, created)
        window *= 8
    if lines:
        raise Damaged("none of its lines can be read")
    return None
