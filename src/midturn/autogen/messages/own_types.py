"""Find a user's own message types by the names that stored messages have for them.

AutoGen's teams list the types that they know. A single agent takes a message of any type, so this looks at the classes
that the program has defined. Nothing is imported for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, StructuredMessage
from pydantic import BaseModel

from midturn.errors import StateInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator

STRUCTURED = f"{StructuredMessage.__name__}["


def name_of(cls: type[BaseModel]) -> str:
    """Return the name that AutoGen's JSON has for messages of a type."""
    field = cls.model_fields.get("type")
    return field.default if field is not None and isinstance(field.default, str) else cls.__name__


def find(name: str, path: str) -> type[BaseModel]:
    """Return the message type that the program has defined under a name. ``path`` names the message in errors.

    Raises:
        StateInvalid: there is none, or there are several.
    """
    if name.startswith(STRUCTURED):  # these classes exist only while they are used; their contents are the user's
        content = name[len(STRUCTURED) : -1]
        found = {_place(cls): cls for cls in _below(BaseModel) if cls.__qualname__ == content}
    else:
        bases: list[type[BaseModel]] = [BaseChatMessage, BaseAgentEvent]
        found = {_place(cls): cls for base in bases for cls in _below(base) if name_of(cls) == name}
    if len(found) != 1:  # of a class that was defined again, the latest counts
        what = f"classes of this program have that name: {', '.join(sorted(found))}" if found else "no class has it now"
        raise StateInvalid(f"is not a message that this agent knows: its type is {name}, and {what}", path=path)
    (cls,) = found.values()
    return cast("Any", StructuredMessage)[cls] if name.startswith(STRUCTURED) else cls


def _place(cls: type[BaseModel]) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _below(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for cls in type.__subclasses__(base):
        yield cls
        yield from _below(cls)
