"""Building what a blueprint says, and seeing that it can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from midturn import codec
from midturn.errors import StateInvalid

if TYPE_CHECKING:
    from midturn.blueprint import Blueprint
    from midturn.codec import Json
    from midturn.framework import Framework


async def build(blueprint: Blueprint, framework: Framework[Any, Any]) -> Any:
    """A fresh agent or team.

    Raises:
        StateInvalid: the factory returned something else.
    """
    live = await blueprint.build()
    if live is None:
        raise StateInvalid("returned None; is its return missing?", path="factory")
    if not framework.is_live(live):
        raise StateInvalid(f"returned a {type(live).__name__}, not an agent or a team", path="factory")
    return live


async def fingerprint_of(live: Any, framework: Framework[Any, Any]) -> dict[str, Json]:
    """How an agent or a team is built.

    Raises:
        StateInvalid: that cannot be stored.
    """
    found = await framework.fingerprint(live)
    codec.check(found, "fingerprint")
    return found
