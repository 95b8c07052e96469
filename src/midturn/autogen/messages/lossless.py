"""Convert messages and memories to JSON without losing anything.

AutoGen's own JSON of a memory loses types: bytes fail or become text, an image becomes an object, and a MIME type of
the enumeration becomes text.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from autogen_agentchat.messages import MemoryQueryEvent
from autogen_core import Image
from autogen_core.memory import MemoryContent, MemoryMimeType

from midturn.errors import StateInvalid
from midturn.record.codec import difference, fits, is_array, is_object
from midturn.record.odd import packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from midturn.record.codec import Json

Frozen: TypeAlias = "tuple[Any, MemoryMimeType | str, Any]"
"""The content, the MIME type and the metadata of a memory."""

MIME_TYPES = {mime.value: mime for mime in MemoryMimeType}
KEYS = {"content", "mime_type", "metadata"}


def dump(message: Any) -> dict[str, Any]:
    """Dump a message as AutoGen does. Memories on which AutoGen fails are dumped as far as JSON can show them."""
    if isinstance(message, MemoryQueryEvent) and not all(map(_is_dumped, message.content)):
        message = message.model_copy(update={"content": [_shown(item) for item in message.content]})
    dumped: dict[str, Any] = dict(message.dump())
    return dumped


def loaded(message: Any) -> Any:
    """Restore the most likely MIME types in a message that AutoGen has loaded."""
    if isinstance(message, MemoryQueryEvent):
        for item in message.content:
            if isinstance(item.mime_type, str):
                item.mime_type = MIME_TYPES.get(item.mime_type, item.mime_type)
    return message


def is_missing(message: Any) -> bool:
    """Return whether the dump of a message loses something of its memories."""
    return isinstance(message, MemoryQueryEvent) and not all(_comes_back(item) for item in message.content)


def memories(message: MemoryQueryEvent) -> list[Json]:
    """Return the memories of a message as lossless JSON."""
    return [encode(frozen(item)) for item in message.content]


def give(message: Any, memories: Json, path: str) -> None:
    """Give a loaded message the memories that its dump had lost. ``path`` names them in errors."""
    if not isinstance(message, MemoryQueryEvent) or not is_array(memories):
        raise StateInvalid("has memories, but its message has none", path=path)
    before = dump(message)
    message.content = [decode(item, f"{path}.memories[{i}]") for i, item in enumerate(memories)]
    if difference(before, dump(message), path) is not None:
        raise StateInvalid("has other memories than its message", path=path)


def frozen(memory: MemoryContent) -> Frozen:
    """Return the present content of a memory, to detect changes by comparing."""
    content = deepcopy(memory.content) if isinstance(memory.content, dict) else memory.content
    return content, memory.mime_type, deepcopy(memory.metadata) if memory.metadata else memory.metadata


def encode(memory: Frozen) -> Json:
    """Return a memory as JSON."""
    content, mime_type, metadata = memory
    stored: Json
    if isinstance(content, bytes):
        stored = {"bytes": b64encode(content).decode()}
    elif isinstance(content, Image):
        stored = {"image": content.to_base64()}
    elif isinstance(content, str):
        stored = content
    else:
        stored = {"object": content}
    return {
        "content": stored,
        "mime_type": {"known": mime_type.value} if isinstance(mime_type, MemoryMimeType) else mime_type,
        "metadata": metadata,
    }


def decode(value: Json, path: str) -> MemoryContent:
    """Load a memory from its JSON.

    Raises:
        StateInvalid: the value is not a memory.
    """
    if not is_object(value) or set(value) != KEYS or not (value["metadata"] is None or is_object(value["metadata"])):
        raise StateInvalid("is not a memory", path=path)
    return MemoryContent.model_construct(
        content=_content(value["content"], f"{path}.content"),
        mime_type=_mime_type(value["mime_type"], f"{path}.mime_type"),
        metadata=deepcopy(value["metadata"]),
    )


def _content(value: Json, path: str) -> Any:
    match value:
        case str():
            return value
        case {"bytes": str(data), **rest} if not rest:
            return _decoded(partial(b64decode, validate=True), data, path)
        case {"image": str(data), **rest} if not rest:
            return _decoded(Image.from_base64, data, path)
        case {"object": dict(content), **rest} if not rest:  # pyright: ignore[reportUnknownVariableType]
            return deepcopy(content)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            raise StateInvalid("is not the content of a memory", path=path)


def _decoded(decode: Callable[[str], Any], data: str, path: str) -> Any:
    try:
        return decode(data)
    except Exception as error:  # an image library can raise anything
        raise StateInvalid(f"is not the content of a memory: {error}", path=path) from error


def _mime_type(value: Json, path: str) -> MemoryMimeType | str:
    match value:
        case str():
            return value
        case {"known": str(name), **rest} if not rest and name in MIME_TYPES:
            return MIME_TYPES[name]
        case _:
            raise StateInvalid("is not a MIME type", path=path)


def _comes_back(memory: MemoryContent) -> bool:
    if memory.mime_type in MIME_TYPES or not fits(memory.metadata):
        return False
    return isinstance(memory.content, str) or (isinstance(memory.content, dict) and "data" not in memory.content)


def _is_dumped(memory: MemoryContent) -> bool:
    """Return whether AutoGen can dump a memory, and loads the same from it again."""
    content = memory.content
    return not isinstance(content, bytes) and fits(memory.metadata) and (not isinstance(content, dict) or fits(content))


def _shown(memory: MemoryContent) -> MemoryContent:
    """Return a copy of a memory that AutoGen can dump."""
    content = memory.content
    if isinstance(content, bytes):
        content = _text(content)
    elif isinstance(content, dict):
        content = packed(content)
    return memory.model_copy(update={"content": content, "metadata": packed(memory.metadata)})


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return b64encode(data).decode()
