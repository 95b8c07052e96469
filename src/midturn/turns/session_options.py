"""The options of a session, which ``store.session()`` takes beside an id and an agent or team."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from midturn.errors import InvalidArgument
from midturn.record.head import check_labels
from midturn.versions.blueprint import check_timeout
from midturn.versions.loading import OnDrift, check_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

Busy: TypeAlias = Literal["wait", "raise"]
Durability: TypeAlias = Literal["call", "turn"]
"""``call``: every call inside a turn is recorded. ``turn``: an interrupted turn runs again as a whole."""

JOURNALS = 50
"""Number of turns whose recorded calls are kept at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a session.

    Raises:
        InvalidArgument: an option has a wrong value; ``path`` names the option.
    """

    labels: Mapping[str, str] | None = None
    on_drift: OnDrift = "warn"
    busy: Busy = "wait"
    timeout: float = 30.0
    turn_timeout: float | None = None
    durability: Durability = "call"
    journals: int = JOURNALS
    reuse: bool = False

    def __post_init__(self) -> None:
        check_policy(self.on_drift)
        if self.busy not in get_args(Busy):
            raise InvalidArgument(f"is {self.busy!r}; it can be 'wait' or 'raise'", path="busy")
        if self.durability not in get_args(Durability):
            raise InvalidArgument(f"is {self.durability!r}; it can be 'call' or 'turn'", path="durability")
        if type(self.journals) is not int or self.journals < 0:
            raise InvalidArgument(f"is {self.journals!r}; give a number of turns, 0 or more", path="journals")
        if type(self.timeout) not in (int, float) or not self.timeout >= 0:
            raise InvalidArgument(f"is {self.timeout!r}; give a number of seconds, 0 or more", path="timeout")
        check_timeout(self.turn_timeout, "turn_timeout")
        if self.labels is not None:
            check_labels(self.labels)
