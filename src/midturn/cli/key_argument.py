"""The keys of a store on the command line: a key file, a key service of the app, those of the environment, or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

import midturn
from midturn.cli.app_argument import load_attribute
from midturn.stores.sealed.keys import FILE_VARIABLE, VARIABLE, Keys

if TYPE_CHECKING:
    from midturn import KeyService, OpenStore

Found: TypeAlias = "KeyService | Literal[False] | None"
"""Keys as :func:`midturn.open` takes them."""

SERVICE_VARIABLE = "MIDTURN_KEY_SERVICE"
NONE = "none"
"""The word for a store that is not sealed. A key file of this name is ./none."""


def opened(url: str, *, keys: str | None = None, **options: Any) -> OpenStore:
    """Return the store at a URL as :func:`midturn.open` does, with the keys that ``keys`` or the environment names."""
    return midturn.open(url, keys=_in_environment() if keys is None else _named(keys), **options)


def key_in_use() -> str | None:
    """Return the id of the key that seals new sessions, or the class of the key service; ``None`` without keys."""
    found = _in_environment() or Keys.in_env()
    return found.current if isinstance(found, Keys) else type(found).__name__ if found else None


def _named(name: str) -> Found:
    if name == NONE:
        return False
    return load_attribute(name) if ":" in name and not Path(name).exists() else Keys.from_file(name)


def _in_environment() -> Found:
    service = os.environ.get(SERVICE_VARIABLE)
    if not service:
        return None
    if other := next((name for name in (VARIABLE, FILE_VARIABLE) if os.environ.get(name)), None):
        raise click.UsageError(f"{SERVICE_VARIABLE} and {other} are both set; keep one")
    found: KeyService = load_attribute(service)
    return found
