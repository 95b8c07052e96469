"""What a tool does to the world, and what may therefore happen to its calls after a crash."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

from midturn.errors import StateInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from midturn.codec import Json

Effect: TypeAlias = Literal["read", "idempotent", "unsafe", "transactional"]
"""``read``: may be repeated. ``idempotent``: may be repeated with the same :func:`midturn.call_key`. ``unsafe``: is
never repeated on its own. ``transactional``: works in the store's own transaction, so it happens exactly once."""

MARK = "__midturn_tool__"

F = TypeVar("F", bound="Callable[..., Any]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that a crash left in doubt, as a ``reconcile`` callback gets it."""

    session: str
    turn: int
    agent: str
    """The path of the agent that called: ``participants/ann``."""
    tool: str
    arguments: Mapping[str, Json]
    key: str
    """What :func:`midturn.call_key` returned inside the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class tool:  # noqa: N801 - it is used as a decorator
    """Say what a tool does to the world: a decorator for the function, or a value in ``Blueprint(effects={...})``.

    ``approval`` has a human asked before the tool acts. ``reconcile`` is called with a :class:`Call` that a crash left
    in doubt; it returns what the tool would have returned if it took effect, and ``None`` if it did not.
    """

    effect: Effect = "unsafe"
    approval: bool = False
    reconcile: Callable[[Call], Any] | None = None

    def __post_init__(self) -> None:
        if self.effect not in get_args(Effect):
            raise StateInvalid(f"is {self.effect!r}; it can be {', '.join(get_args(Effect))}", path="effect")
        if self.reconcile is not None and not callable(self.reconcile):
            raise StateInvalid("must be a function", path="reconcile")

    def __call__(self, function: F) -> F:
        """The function itself, marked."""
        if not callable(function):
            raise StateInvalid(f"decorates a function, not a {type(function).__name__}", path="midturn.tool")
        setattr(function, MARK, self)
        return function


def marked(function: Any) -> tool | None:
    """What a function was marked with."""
    while isinstance(function, partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType] - of whatever type
    found = getattr(function, MARK, None)
    return found if isinstance(found, tool) else None


def declared(effects: Mapping[str, Effect | tool]) -> dict[str, tool]:
    """What a blueprint says of its tools, by their names."""
    found: dict[str, tool] = {}
    for name, effect in effects.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] - callers may be untyped
            raise StateInvalid("has a tool's name for each effect", path="effects")
        found[name] = effect if isinstance(effect, tool) else tool(effect=effect)
    return found
