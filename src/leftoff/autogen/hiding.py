"""Secrets in texts: what must not be stored, and differs from machine to machine."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HIDDEN = "***"

SHORTEST = 8
"""A shorter value of an environment variable would be found in ordinary words."""

NAMES = re.compile("KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
"""What the names of environment variables with secrets have in them."""

SHAPES = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+                               # JSON Web Token
    | \bsk-(?=[\w-]*\d)[\w-]{16,} | \b[spr]k_(?:live|test)_\w{10,}    # OpenAI, Anthropic, Stripe
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                                   # AWS
    | \bgh[pousr]_\w{20,} | \bgithub_pat_\w{20,}                      # GitHub
    | \bglpat-[\w-]{16,} | \bxox[a-z]-[\w-]{10,} | \bAIza[\w-]{30,}   # GitLab, Slack, Google
    """,
    re.VERBOSE | re.DOTALL,
)

AFTER = re.compile(
    r"""
      (?P<bearer>\bbearer\s+)(?:(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,}|[\w.~+/=-]{20,})
    | (?P<aws>\baws_secret_access_key["']?\s*[=:]\s*["']?)[\w+/=-]{16,}
    | (?P<login>\b[a-z][\w+.-]*://)[^\s/:@]*:[^\s/@]+(?=@)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Secrets that are told by what stands before them, which may stay."""


def hiding() -> Callable[[str], str]:
    """What puts ``***`` in the place of each secret in a text: those of the environment, and well-known shapes."""
    secrets = {value for name, value in os.environ.items() if len(value) >= SHORTEST and NAMES.search(name)}
    longest_first = sorted(secrets, key=lambda value: (-len(value), value))  # one may be the beginning of another
    known = re.compile("|".join(map(re.escape, longest_first))) if secrets else None

    @lru_cache(maxsize=4096)  # names come again and again
    def hide(text: str) -> str:
        if known is not None:
            text = known.sub(HIDDEN, text)
        text = AFTER.sub(lambda found: f"{found[found.lastgroup or 0]}{HIDDEN}", text)
        return SHAPES.sub(HIDDEN, text)

    return hide
