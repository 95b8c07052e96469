"""Commands to type, for what this server cannot do itself."""

from __future__ import annotations

import shlex


def command(verb: str, *words: str) -> str:
    """Return a line to type, in a shell whose ``MIDTURN_URL`` names the store."""
    options = ["--"] if any(word.startswith("-") for word in words) else []
    return shlex.join(["midturn", verb, *options, *words])
