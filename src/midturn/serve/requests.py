"""Arguments that routes take from a request: the sessions of its sender, and how the sender wants its turn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header
from starlette.requests import Request

from midturn.serve.cases import Cases
from midturn.serve.problems import Problem

_WAIT = re.compile(r"wait=([0-9]{1,6})")
_NUMBER = re.compile(r"[0-9]{1,9}")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


def _cases(request: Request) -> Cases:
    found = request.state.cases
    assert isinstance(found, Cases)  # noqa: S101 - the gate has set it
    return found


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


Root = Annotated[str, Depends(_root)]
"""The path under which the app is mounted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The wishes of a client about the outcome of a turn."""

    stream: bool
    """As a stream of events."""
    wait: float | None
    """Seconds to wait for it; ``None`` to wait as long as it takes."""
    last_event_id: str
    root: str
    """The path under which the app is mounted."""

    def after(self, turn: int) -> int:
        """Return the number of the last event of a turn that the client has seen."""
        of, _, number = self.last_event_id.rpartition(".")
        return int(number) if of == str(turn) and _NUMBER.fullmatch(number) else 0


def _wanted(
    root: Root,
    prefer: Annotated[
        str, Header(description="`respond-async`: do not wait for the turn. `wait=10`: wait so many seconds.")
    ] = "",
    accept: Annotated[str, Header(description="`text/event-stream` follows the turn.")] = "",
    last_event_id: Annotated[str, Header(description="The id of the last event that was seen.")] = "",
) -> Wanted:
    words = [word.strip().lower() for word in prefer.split(",")]
    waits = [float(found[1]) for word in words if (found := _WAIT.fullmatch(word))]
    wait = waits[0] if waits else 0.0 if "respond-async" in words else None
    return Wanted(stream="text/event-stream" in accept.lower(), wait=wait, last_event_id=last_event_id, root=root)


def _key(
    idempotency_key: Annotated[
        str | None,
        Header(description='The same key delivered twice runs once. Quoted or bare: `"mail-8812"`, `mail-8812`.'),
    ] = None,
) -> str | None:
    if idempotency_key is None:
        return None
    key = idempotency_key.strip()
    if (quoted := _QUOTED.fullmatch(key)) is not None:
        key = _ESCAPED.sub(r"\1", quoted[1])
    elif key.startswith('"'):
        raise Problem(400, "InvalidKey", "the Idempotency-Key does not end with a quote")
    if not key:
        raise Problem(400, "InvalidKey", "the Idempotency-Key is empty")
    return key


Mine = Annotated[Cases, Depends(_cases)]
"""The sessions that the sender of a request may see and use."""
Wants = Annotated[Wanted, Depends(_wanted)]
Key = Annotated[str | None, Depends(_key)]
"""The key under which the same request counts once."""
