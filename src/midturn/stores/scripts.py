"""SQL and Lua that ships beside the code."""

from __future__ import annotations

import re
from importlib.resources import files


def script(name: str) -> str:
    """The text of a file."""
    return files("midturn.stores").joinpath(name).read_text(encoding="utf-8")


def named(name: str) -> dict[str, str]:
    """The parts of a file, each of which begins with a line ``-- name: ...``."""
    _, *parts = re.split(r"^-- name: (\w+)\n", script(name), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))
