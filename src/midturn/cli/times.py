"""Types of options that are a duration or a time: ``--since 2d``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"([0-9]{1,6})(s|min|h|d|w)")


def duration(text: str) -> timedelta:
    """Return the duration that a text names: ``90s``, ``15min``, ``12h``, ``2d``, ``1w``."""
    if found := _DURATION.fullmatch(text):
        return timedelta(**{UNITS[found[2]]: int(found[1])})
    raise click.BadParameter(f"{text!r} is no duration such as 90s, 15min, 12h, 2d or 1w")


def since(text: str) -> datetime:
    """Return the time that a text names, in UTC: so long ago, or a date or time in the time zone of the terminal."""
    try:
        if _DURATION.fullmatch(text):
            return datetime.now(UTC) - duration(text)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        message = f"{text!r} is no duration such as 12h or 2d, and no time such as 2026-11-01 or 2026-11-01T09:30"
        raise click.BadParameter(message) from None
