"""What tells one request from another, and a request as people read it."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import orjson

SHOWN = 200
"""Characters of a call's arguments that are kept for people."""


def digest(*parts: Any) -> str:
    """Return a digest that tells one request from another."""
    return blake2b(shown(parts, sort=True).encode(), digest_size=12).hexdigest()


def shown(value: Any, *, sort: bool = False) -> str:
    """Return a value as JSON, whatever it is: models ask for numbers and characters that cannot be stored."""
    try:
        return orjson.dumps(
            value, option=orjson.OPT_NON_STR_KEYS | (orjson.OPT_SORT_KEYS if sort else 0), default=_foreign
        ).decode()
    except TypeError:
        return json.dumps(value, sort_keys=sort, separators=(",", ":"), default=_foreign)


def _foreign(value: Any) -> str:
    """Return what stands for a value that is not JSON; it is the same in every process."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def about(arguments: Any) -> str:
    """Return the beginning of a call's arguments, for people."""
    return shown(arguments)[:SHOWN]
