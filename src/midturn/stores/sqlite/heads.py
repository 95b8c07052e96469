"""How the head of a session lies in SQLite."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, get_args

from midturn.errors import StateInvalid
from midturn.record.codec import decode
from midturn.record.head import Head, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import UnionType

_log = logging.getLogger(__name__)

FIELDS = ("session", "seq", "epoch", "status", "labels", "owner", "expires", "token", "created", "updated", "data")
_TYPES: tuple[type | UnionType, ...] = (str, int, int, str, str, str | None, float, str, float, float, bytes)


def readable(rows: Iterable[tuple[Any, ...]]) -> Iterator[Head]:
    """The heads of those rows that have one; the others are left out, with a warning."""
    for row in rows:
        try:
            yield as_head(row)
        except StateInvalid as error:
            _log.warning("a session is left out of the list: %s", error)


def as_head(row: tuple[Any, ...]) -> Head:
    """The head of a session, from its row."""
    fields = dict(zip(FIELDS, row, strict=True))
    if all(map(isinstance, row, _TYPES)) and fields["status"] in get_args(Status):
        fields["labels"] = decode(fields["labels"].encode(), f"labels of {fields['session']!r}")
        if isinstance(fields["labels"], dict):
            return Head(**fields, now=time.time())
    raise StateInvalid("the record is damaged", path=f"head of {fields['session']!r}", session=str(fields["session"]))
