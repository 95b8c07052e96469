"""Hide secrets in texts. Secrets must not be stored, and they differ between machines."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HIDDEN = "***"

SHORTEST = 8
"""Shorter values of environment variables are not hidden: they would match ordinary words."""

NAMES = re.compile("KEY|TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE|CREDENTIAL|(?:^|_)PASS(?:_|$)|_PWD$", re.IGNORECASE)
"""Parts of the names of environment variables with secrets."""

ADDRESSES = re.compile("URL|URI|DSN|CONN|DATABASE", re.IGNORECASE)
"""Parts of the names of environment variables whose values may contain a password."""

COMMON = {"changeme", "password", "postgres", "postgresql", "rabbitmq"}
"""Values that are not secret and occur in ordinary texts."""

SHAPES = re.compile(
    r"""
      -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+                               # JSON Web Token
    | \bsk-(?=[\w-]{0,99}(?:\d|\w{20}|[a-z][A-Z]))[\w-]{16,}          # OpenAI, Anthropic; no words with hyphens
    | \b[spr]k_(?:live|test)_\w{10,}                                  # Stripe
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                                   # AWS
    | \bgh[pousr]_\w{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,} # GitHub, GitLab
    | \bxox[a-z](?:\.xox[a-z])?-[\w-]{10,} | \bxapp-\d-[\w-]{10,}     # Slack
    | \bAIza[\w-]{30,} | \bSG\.[\w-]{16,}\.[\w-]{16,}                 # Google, SendGrid
    | \b(?:gsk_|hf_|npm_|xai-)[A-Za-z0-9]{20,}                        # Groq, Hugging Face, npm, xAI
    """,
    re.VERBOSE | re.DOTALL,
)

LOGIN = re.compile(
    r"""
    (?P<login>\b[A-Za-z][\w+.-]{0,30}://)                             # no longer: else a long word takes minutes
    (?P<user>[^\s/:@]*):
    (?!\d{1,5}[/?\#]|\{\w*\}/)                                        # that is a port
    (?P<password>(?:(?!://)[^\s"'<>])+)(?=@[\w\[{*])                  # to the last @: it may have some in it
    """,
    re.VERBOSE,
)

NO_VALUE = r"(?![{<\[(]|\$\{|\$[A-Z_]+\b|\*\*\*|\w+://)"
"""A value that is no secret: a placeholder, a hidden value, or an address."""

AFTER = re.compile(
    rf"""
      (?P<scheme>\b(?i:bearer|basic)\s+){NO_VALUE}
        (?:(?=[\w.~+/=-]*(?:\d|[a-z][A-Z]))[\w.~+/=-]{{8,}}|[\w.~+/=-]{{20,}})
    | (?P<slack>\bhooks\.slack\.com/(?:services|workflows|triggers)/)[\w/-]{{8,}}
    | (?P<query>[?&](?i:[\w-]*(?:token|secret|password|signature)|(?:[\w-]*(?:api|access|auth)[_-]?)?key|sig|auth)=)
        {NO_VALUE}[^\s&\#"'<>]{{8,}}
    | (?P<label>(?i:api[_-]?key|access[_-]?key|account[_-]?key|secret[_-]?key|private[_-]?key
                  |secret|token|password|passwd|passphrase|pwd)
        (?:["']?[ \t]*=[ \t]*["'`]?|["']?[ \t]*:[ \t]*["'`]
          |["']?[ \t]*:[ \t]*(?=\S*(?:\d|[a-z][A-Z]|[!@\#$%^*+=~]\w)|\S{{20}})))    # not as words are in a sentence
        {NO_VALUE}[^\s"'`;&]{{7,}}[^\s"'`;&,.!?:)\]}}]
    """,
    re.VERBOSE,
)
"""Secrets that follow a known word. The word stays."""

WRITTEN = re.compile(r"(?i:\b(?:password|passwd|pwd)\s*=\s*)'?([^\s;']+)")
"""The password in a connection string that is not a URL."""


class Hiding(NamedTuple):
    """Functions that replace each secret in a text by ``***``."""

    names: Callable[[str], str]
    """For names that identify things: hides only well-known forms of secrets."""
    prose: Callable[[str], str]
    """For prose: also hides the secrets in the environment of this process."""


def hiding() -> Hiding:
    """Return functions that hide secrets, including those in the present environment."""
    secrets = {value for value in _secrets() if len(value) >= SHORTEST and value.lower() not in COMMON}
    longest_first = sorted(secrets, key=lambda value: (-len(value), value))  # one may be the beginning of another
    known = re.compile("|".join(map(re.escape, longest_first))) if secrets else None

    @lru_cache(maxsize=4096)  # the same names come often
    def names(text: str) -> str:
        text = LOGIN.sub(rf"\g<login>{HIDDEN}", text)
        text = AFTER.sub(lambda found: f"{found[found.lastgroup or 0]}{HIDDEN}", text)
        return SHAPES.sub(HIDDEN, text)

    @lru_cache(maxsize=4096)
    def prose(text: str) -> str:
        return names(text if known is None else known.sub(HIDDEN, text))

    return Hiding(names, prose)


def _secrets() -> Iterator[str]:
    for name, value in os.environ.items():
        if NAMES.search(name):
            yield value
        if ADDRESSES.search(name):
            found = [*(login["password"] for login in LOGIN.finditer(value)), *WRITTEN.findall(value)]
            yield from (*found, *map(unquote, found))
