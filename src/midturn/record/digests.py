"""Digests that identify requests."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

import orjson


def digest(*parts: Any) -> str:
    """Return a digest that identifies a request by its parts."""
    return blake2b(shown(parts, sort=True).encode(), digest_size=12).hexdigest()


def shown(value: Any, *, sort: bool = False) -> str:
    """Return any value as JSON text, also one that the codec rejects: models send such numbers and characters."""
    try:
        return orjson.dumps(
            value, option=orjson.OPT_NON_STR_KEYS | (orjson.OPT_SORT_KEYS if sort else 0), default=_foreign
        ).decode()
    except TypeError:
        return json.dumps(value, sort_keys=sort, separators=(",", ":"), default=_foreign)


def _foreign(value: Any) -> str:
    """Return a substitute for a value that is not JSON; it is the same in every process."""
    return f"{type(value).__module__}.{type(value).__qualname__}"
