"""The texts in messages, answers and states of AutoGen that a person, a model or a tool wrote, to redact them.

Names, ids, types, times and pictures are no texts.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

from midturn.autogen.messages.conversion import AUTOGENS
from midturn.record.codec import is_array, is_object
from midturn.record.packing import Grown
from midturn.redaction import text_in, texts_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from midturn.record.codec import Json
    from midturn.redaction import Clean

NOT_TEXT = {"type", "source", "target", "id", "created_at", "request_id", "full_message_id", "models_usage"}
"""Fields of a message that are no text."""
CALL, RESULT = {"id", "name", "arguments"}, {"name", "content", "call_id", "is_error"}
MEMORY, IMAGE = {"content", "mime_type", "metadata"}, {"data"}
STATE = re.compile(r"[A-Za-z]+State")
"""The types of AutoGen's states."""
KNOWN = AUTOGENS | {"SystemMessage", "UserMessage", "AssistantMessage", "FunctionExecutionResultMessage"}
"""The types of AutoGen's own messages, between agents and to models."""


def message(value: Any, clean: Clean) -> Any:
    """Return a message as JSON with its texts cleaned."""
    if not is_object(value):
        return texts_in(value, clean)
    return {key: item if key in NOT_TEXT else _field(item, clean) for key, item in value.items()}


def _field(value: Any, clean: Clean) -> Any:
    if is_array(value):
        return [_field(item, clean) for item in value]
    return _object(value, set(value), clean) if is_object(value) else texts_in(value, clean)


def _object(value: dict[str, Any], keys: set[str], clean: Clean) -> Any:
    if keys == IMAGE:  # of a message with pictures
        return value
    if keys == CALL:
        return {**value, "arguments": text_in(str(value["arguments"]), clean, str(value["name"]))}
    if keys == RESULT:
        return {**value, "content": texts_in(value["content"], clean, str(value["name"]))}
    if keys == MEMORY:
        return memory(value, clean)
    return message(value, clean) if _is_message(value) else texts_in(value, clean)


def memory(value: Any, clean: Clean) -> Any:
    """Return the JSON of a memory with its texts cleaned."""
    if not is_object(value) or set(value) != MEMORY:
        return texts_in(value, clean)
    content = value["content"]
    if is_object(content) and isinstance(data := content.get("bytes"), str) and len(content) == 1:
        content = _of_bytes(data, clean)
    elif not (is_object(content) and set(content) in ({"image"}, IMAGE)):
        content = texts_in(content, clean)
    return {**value, "content": content, "metadata": texts_in(value["metadata"], clean)}


def _of_bytes(data: str, clean: Clean) -> Json:
    """Return the content of a memory that is bytes. Bytes that are no text stay."""
    try:
        text = b64decode(data).decode()
    except ValueError:
        return {"bytes": data}
    return {"bytes": b64encode(text_in(text, clean).encode()).decode()}


def of_model(value: dict[str, Any], clean: Clean) -> dict[str, Any]:
    """Return the answer of a model with its texts cleaned. What was streamed is one piece then.

    A secret may be spread over the tokens of the probabilities, so these are left out.
    """
    found = {key: _field(item, clean) if key in ("content", "thought") else item for key, item in value.items()}
    found["logprobs"] = None
    if chunks := value.get("chunks"):
        was, now = value["content"], found["content"]
        whole = all(isinstance(chunk, int) for chunk in chunks)
        found["chunks"] = [len(now)] if whole else [now if (said := "".join(chunks)) == was else text_in(said, clean)]
    return found


def of_tool(value: dict[str, Any], clean: Clean) -> dict[str, Any]:
    """Return the answer of a tool, a code executor, a memory or a person with its texts cleaned."""
    found: dict[str, Any] = {}
    for key, item in value.items():
        match key:
            case "result" if is_object(item):
                found[key] = {**item, "result": [_part(part, clean) for part in item.get("result", ())]}
            case "events" | "added":
                found[key] = [message(each, clean) for each in item]
            case "results":
                found[key] = [memory(each, clean) for each in item]
            case "states":
                found[key] = {path: of_state(each, clean, ()) for path, each in item.items()}
            case "decision" | "exit_code" | "anew" | "changed":
                found[key] = item
            case _:
                found[key] = texts_in(item, clean)
    return found


def _part(part: Any, clean: Clean) -> Any:
    """Return a part of a tool's result; a picture stays."""
    if not is_object(part) or not isinstance(content := part.get("content"), str):
        return part
    return {**part, "content": text_in(content, clean)}


class StateTexts:
    """Walks the captured states of one agent or team. Lists that have only grown are walked from where they have."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], list[Any]] = {}
        self._found: dict[tuple[str, ...], list[Any]] = {}

    def walk(self, tree: Any, clean: Clean) -> Any:
        """Return a state with its texts cleaned; the same object if nothing changes."""
        self._found = {}
        names = set(_names(tree["state"]))
        parts = {"state": self._walk(tree["state"], clean, names, ("state",))}
        if "beside" in tree:
            parts["beside"] = {
                path: self._walk(item, clean, names, ("beside", path)) for path, item in tree["beside"].items()
            }
        found = {**tree, **parts}
        return tree if found == tree else found

    def keep(self) -> None:
        """Remember the lists of the state that was walked last: their texts are final."""
        self._known = self._found

    def _walk(self, value: Any, clean: Clean, names: Collection[str], path: tuple[str, ...]) -> Any:
        if isinstance(value, Grown):
            return self._grown(value, clean, path)
        if not is_object(value) or _is_message(value) or set(value) == MEMORY:
            return of_state(value, clean, names)
        fixed = ("type", "version") if STATE.fullmatch(str(value.get("type"))) else ()
        found = {
            key if key in names or fixed else _key(key, clean): item
            if key in fixed
            else self._walk(item, clean, names, (*path, key))
            for key, item in value.items()
        }
        return value if found == value else found

    def _grown(self, value: Grown, clean: Clean, path: tuple[str, ...]) -> Any:
        known = self._known.get(path, [])
        start = len(known) if value.items[: len(known)] == known else 0
        before = [value.dump(item) for item in value.items[start:]]
        after = [of_state(item, clean, ()) for item in before]
        self._found[path] = list(value.items)
        return value if after == before else [*map(value.dump, value.items[:start]), *after]


def of_state(value: Any, clean: Clean, names: Collection[str]) -> Any:
    """Return a value of a captured state with its texts cleaned; the same object if nothing changes."""
    if is_object(value):
        if _is_message(value):
            found: Any = message(value, clean)
        elif set(value) == MEMORY:
            found = memory(value, clean)
        else:
            found = {
                key if key in names else _key(key, clean): of_state(item, clean, names) for key, item in value.items()
            }
    elif is_array(value):
        found = [of_state(item, clean, names) for item in value]
    else:
        found = value if value in names else texts_in(value, clean, numbers=False)
    return value if found == value else found


def _names(state: Any) -> Iterator[str]:
    """Yield the names of the agents in the state of a team. They are no texts."""
    for key, value in state.items() if is_object(state) else ():
        if key == "agent_states" and is_object(value):
            yield from value
            yield from (name.partition("/")[0] for name in value)
        yield from _names(value)


def _key(key: str, clean: Clean) -> str:
    [found] = texts_in({key: None}, clean)
    return str(found)


def _is_message(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and "content" in value and (kind in KNOWN or value.keys() >= {"source", "created_at"})
