"""How to build what a session runs."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from leftoff.effects import declared
from leftoff.errors import StateInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leftoff.effects import Effect, tool


class Blueprint:
    """A factory for an agent or a team, with a name and a version.

    The factory takes no arguments, is sync or async, and returns a *fresh* agent or team each time: one is built in
    each process, and another after each turn that failed. ``effects`` says by name what tools do to the world, also
    those of MCP servers: ``{"search": "read", "refund": leftoff.tool(effect="unsafe", approval=True)}``.
    """

    def __init__(
        self,
        name: str,
        factory: Callable[[], Any],
        *,
        version: int = 1,
        effects: Mapping[str, Effect | tool] | None = None,
    ) -> None:
        if not callable(factory):  # pyright: ignore[reportUnnecessaryComparison] - callers may be untyped
            raise StateInvalid(f"needs a function that builds it, not a {type(factory).__name__}", path=name)
        if type(version) is not int or version < 1:
            raise StateInvalid(f"version {version!r} is not a whole number from 1 on", path=name)
        self.name = name
        self.version = version
        self.effects = declared(effects or {})
        self._factory = factory

    def __repr__(self) -> str:
        return f"Blueprint({self.name!r}, version={self.version})"

    async def build(self) -> Any:
        """A fresh agent or team."""
        made = self._factory()
        if inspect.isawaitable(made):
            made = await made
        return made
