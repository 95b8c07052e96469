"""Compute the keys by which the journal distinguishes requests.

Each request to a model repeats most messages of the previous one, so the digest of each message is computed once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from midturn.record.codec import class_of, is_array, is_object
from midturn.record.digests import digest, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogen_core import FunctionCall


SIZE = 12
"""Bytes of a digest."""


class Digests:
    """The digests of the requests from one recorder.

    A message never changes, so its digest is computed once. The digests stand in one array: objects for each message
    would lie between the messages in memory, and AutoGen's own passes over the messages would take longer.
    """

    def __init__(self) -> None:
        self._last: list[Any] = []
        """The messages of the last request."""
        self._digests = bytearray()
        """Their digests, one after the other."""
        self._state = blake2b(digest_size=SIZE)

    def of(self, messages: Sequence[Any], options: Mapping[str, Any], *, stream: bool) -> str:
        """Return the digest of a request."""
        found = messages if class_of(messages) is list else list(messages)  # a copy would touch each message
        known, start = dict[int, bytes](), len(self._last)
        self._last += found[start:]
        try:
            # Compare whole lists: Python skips items that are the same object without reading them.
            same = self._last == found
        finally:
            del self._last[start:]
        if not same:  # the context has dropped messages, or has others
            last, digests = self._last, self._digests
            known = {id(message): bytes(digests[i * SIZE : (i + 1) * SIZE]) for i, message in enumerate(last)}
            start, self._last, self._digests, self._state = 0, [], bytearray(), blake2b(digest_size=SIZE)
        for message in found[start:]:
            one = known.get(id(message)) or blake2b(_json(message), digest_size=SIZE).digest()
            self._last.append(message)
            self._digests += one
            self._state.update(one)
        return digest(self._state.hexdigest(), stream, {name: _plain(value) for name, value in options.items()})


def _json(message: BaseModel) -> bytes:
    """Return the bytes of ``model_dump_json()``, without a text of the same size on the way."""
    try:
        return message.__pydantic_serializer__.to_json(message)
    except PydanticSerializationError:  # half a character, which a tool may return
        return shown(message.model_dump()).encode()


def _plain(value: Any) -> Any:
    """Return an option of a request as JSON, as far as possible."""
    if is_array(value):
        return [_plain(item) for item in value]
    if isinstance(value, type):
        return _schema(cast("Any", value))
    return getattr(value, "schema", value)  # tools have a schema


@lru_cache(maxsize=256)
def _schema(model: Any) -> Any:
    return model.model_json_schema() if issubclass(model, BaseModel) else model.__qualname__


def tool_key(agent: str, name: str, arguments: Any) -> str:
    """Return the key of a tool call. The key does not contain the model's id of the call, which differs each time."""
    return digest(agent, name, given(arguments))


def given(arguments: Any) -> Any:
    """Return the arguments of a tool call, an empty object for none.

    A model may send JSON that is not an object, such as a list. The tool rejects it, and the model learns why.
    """
    if not arguments:
        return {}
    return dict(cast("Mapping[str, Any]", arguments)) if isinstance(arguments, Mapping) else arguments


def called(call: FunctionCall) -> Any:
    """Return the arguments of a model's call; ``None`` if they are not an object, so that AutoGen rejects the call."""
    try:
        found = json.loads(call.arguments)
    except ValueError:
        return None
    return found if is_object(found) else None
