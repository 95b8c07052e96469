"""Principals, who send requests, and what they may do. The hooks that an application passes to :func:`midturn.asgi`."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from starlette.requests import Request

from midturn.questions import check_by
from midturn.record.head import check_labels

Action: TypeAlias = Literal["read", "run", "answer", "discard", "fork", "rewind", "label", "export", "delete"]
"""Something that a principal wants to do with a session. ``run`` is also to resume, to cancel and to replay a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A person or a program that uses the server.

    ``name`` becomes ``by`` in every decision. With ``labels``, the principal sees only sessions that have these labels,
    in lists, counts, searches and lineages, too; and the sessions that it begins get them.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        check_by(self.name)
        check_labels(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionName:
    """The session that an action is about: its id and its labels, which are those that a new session gets."""

    id: str
    labels: Mapping[str, str]


def same(given: str, wanted: str) -> bool:
    """Return whether two texts are equal, in a time that says nothing about them."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("utf-8", "replace"))


Authenticate: TypeAlias = Callable[[Request], "Principal | Awaitable[Principal | None] | None"]
"""Returns who sends a request; ``None`` for a stranger, who gets an error 401."""

Authorize: TypeAlias = Callable[[Principal, Action, SessionName], "bool | Awaitable[bool]"]
"""Returns whether somebody may do something with a session. A session that nobody may read does not exist for them."""
