"""SQL and Lua files that ship with the code."""

from __future__ import annotations

import re
from importlib.resources import files


def script(name: str) -> str:
    """Return the text of a file."""
    return files("midturn.stores").joinpath(name).read_text(encoding="utf-8")


def named(name: str) -> dict[str, str]:
    """Return the parts of a file by name; each part begins with a line ``-- name: ...``."""
    _, *parts = re.split(r"^-- name: (\w+)\n", script(name), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))
