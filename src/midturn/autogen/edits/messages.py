"""Map, redact, truncate and extend the messages and memories of a captured state."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, cast

from midturn.autogen.edits import call_pairs
from midturn.autogen.edits.agents import each_call
from midturn.autogen.edits.call_pairs import calls_of, results_of
from midturn.autogen.edits.teams import manager_of
from midturn.autogen.edits.tree import LEFT, beside_of, copied, find, is_below, join, nodes, words
from midturn.autogen.messages.lossless import MIME_TYPES
from midturn.errors import InvalidArgument, StateInvalid
from midturn.record import codec
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from midturn.autogen.edits.tree import Words

MEMORIES = "MemoryQueryEvent"
IMAGE = {"data"}
MODEL_SEES = ("AssistantMessage", "FunctionExecutionResultMessage")
"""Types of messages with calls or results in a context, where a result does not say whose it is."""
NOT_TEXT = {"type", "source", "target", "id", "created_at", "request_id", "full_message_id", "models_usage"}
"""Fields of a message that no person or model wrote as text."""


def _lists(tree: Any, agent: str | None) -> list[Words]:
    """Return all lists of messages, or only those of one agent or team."""
    if agent is None:
        return words(tree)
    node = find(tree, agent)
    return [each for each in words(tree) if each.owner.parts == node.parts]


def map_each(tree: Any, change: Callable[[dict[str, Any]], Any], agent: str | None) -> None:
    """Replace each message by what the function returns, or drop it.

    Raises:
        StateInvalid: a call lost its result or a result its call, or the function did not return a message.
    """
    before: Counter[str] = call_pairs.count_broken(tree)
    for each in _lists(tree, agent):
        placed: list[tuple[int | None, Any]] = []
        for index, message in enumerate(list(each.messages)):
            new = change(copied(message))
            if new is None:
                continue
            if not is_object(new):
                raise StateInvalid(f"the function returned a {type(new).__name__}", path=f"{each.at}[{index}]")
            codec.check(new, f"{each.at}[{index}]")
            stays = new.get("type") == message.get("type")
            if stays:
                _recall(each, index, new)
            placed.append((index if stays else None, copied(new)))
        each.put(placed)
    call_pairs.check(tree, before)


def _recall(each: Words, index: int, new: dict[str, Any]) -> None:
    """Update the exact memories of a message to those that it has now."""
    item = next((item for item in each.recalled if item["index"] == index), None)
    old = each.messages[index]
    if item is None or old["content"] == new["content"]:
        return
    was = item["memories"]
    now = [_exact(memory, was[i] if i < len(was) else None) for i, memory in enumerate(new["content"])]
    if all(map(_comes_back, now)):
        each.recalled.remove(item)
    else:
        item["memories"] = now


def _exact(memory: dict[str, Any], was: dict[str, Any] | None) -> dict[str, Any]:
    """Return a memory in its exact form, with the kind of MIME type that the memory in its place had."""
    content, mime = memory.get("content"), memory.get("mime_type")
    known: Any = {"known": mime} if mime in MIME_TYPES else mime
    if was is not None and was["mime_type"] in (mime, known):
        known = was["mime_type"]
        if is_object(kept := was["content"]) and _shown(kept) in (None, content):
            content = kept
    return {
        "content": content
        if isinstance(content, str) or content is (was or {}).get("content")
        else {"object": content},
        "mime_type": known,
        "metadata": memory.get("metadata"),
    }


def _shown(content: dict[str, Any]) -> Any:
    """Return AutoGen's JSON of a memory's content, or ``None`` if only AutoGen can produce it."""
    if "object" in content:
        return content["object"]
    if "bytes" not in content:
        return None
    try:
        return b64decode(content["bytes"]).decode()
    except ValueError:
        return content["bytes"]


def _comes_back(memory: dict[str, Any]) -> bool:
    """Return whether AutoGen's JSON of a memory is lossless, as :mod:`midturn.autogen.messages.lossless` decides."""
    content, mime = memory["content"], memory["mime_type"]
    if isinstance(mime, str) and mime in MIME_TYPES:
        return False
    return isinstance(content, str) or ("object" in content and "data" not in content["object"])


def rename_type(tree: Any, old: object, new: object) -> None:
    """Change the type of messages. The type of a structured message can be named by its content."""
    for name in (old, new):
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"{name!r} is not the name of a message type", path="type")
    wrapped = new if "[" in str(new) else f"StructuredMessage[{new}]"
    for each in words(tree):
        for message in each.messages if each.kind != "context" else ():
            if message.get("type") == old:
                message["type"] = new
            elif message.get("type") == f"StructuredMessage[{old}]":
                message["type"] = wrapped


def add_field(tree: Any, name: object, field: object, default: Any) -> None:
    """Add a field to messages of a type that lack it. In structured messages the field is added to the content."""
    if not isinstance(name, str) or not name or not isinstance(field, str) or not field:
        raise InvalidArgument("needs the name of a type and the name of a field", path="add_field")
    codec.check_argument(default, "default")
    for each in words(tree):
        for message in each.messages:
            if message.get("type") in (name, f"StructuredMessage[{name}]"):
                structured = is_object(message.get("content"))
                (message["content"] if structured else message).setdefault(field, copied(default))


def correct(tree: Any, said: object, instead: object) -> None:
    """Replace a text in all messages, calls and memories.

    Raises:
        InvalidArgument: nobody said that.
    """
    if not isinstance(said, str) or not said:
        raise InvalidArgument(f"is {said!r}; it must be a text that is not empty", path="said")
    if not isinstance(instead, str) or not instead:
        raise InvalidArgument(f"is {instead!r}; it must be a text that is not empty", path="instead")
    before = copied(tree)
    redact(tree, re.escape(said), instead)
    if tree == before:
        raise InvalidArgument(f"nobody said {said!r}, or it reads {instead!r} already", path="said")


def drop(tree: Any, said: object, agent: str | None) -> None:
    """Drop the messages that contain a text, and with a call its result, and with a result its call.

    Raises:
        InvalidArgument: no message contains the text.
    """
    if not isinstance(said, str) or not said:
        raise InvalidArgument(f"is {said!r}; it must be a text that is not empty", path="said")
    found = False
    for each in _lists(tree, agent):
        gone = {i for i, message in enumerate(each.messages) if said in "\n".join(_texts(message))}
        if gone:
            found = True
            gone = _with_partners(each.messages, gone)
            stay = [i for i in range(len(each.messages)) if i not in gone]
            _keep_turn(each, stay)
            each.put([(i, each.messages[i]) for i in stay])
    if not found:
        raise InvalidArgument(f"no message contains {said!r}", path="said")


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a message that a person or a model wrote."""
    if isinstance(value, str):
        yield value
    elif is_object(value):
        for key, item in value.items():
            if key not in NOT_TEXT:
                yield from _texts(item)
    elif is_array(value):
        for item in value:
            yield from _texts(item)


def _with_partners(messages: list[Any], gone: set[int]) -> set[int]:
    """Return the messages to drop, with those that have the results of their calls or the calls of their results."""
    partners: dict[int, set[int]] = {}
    latest: dict[tuple[Any, str], set[int]] = {}
    for index, message in enumerate(messages):
        source = None if message.get("type") in MODEL_SEES else message.get("source")
        told = message.get("results")  # of a summary
        results = [*results_of(message), *(told if is_array(told) else ())]
        for call in calls_of(message):
            latest[source, str(call.get("id"))] = {index}  # models repeat their ids
        for result in filter(is_object, results):
            together = latest.get((source, str(result.get("call_id"))), set())
            together.add(index)
            partners |= {each: partners.get(each, set()) | together for each in together}
    left = list(gone)
    while left:
        more = partners.get(left.pop(), set()) - gone
        gone |= more
        left += more
    return gone


def truncate(tree: Any, last: object, agent: str | None) -> None:
    """Keep the last messages of contexts and threads. A call stays with its result."""
    if type(last) is not int or last < 0:
        raise InvalidArgument(f"is {last!r}; it must be a number of messages, 0 or more", path="last")
    for each in _lists(tree, agent):
        if each.kind == "buffer":
            continue  # nobody has heard these yet
        messages = list(each.messages)
        counted = [i for i, message in enumerate(messages) if message.get("type") != "SystemMessage"]
        system = set(range(len(messages))).difference(counted)
        start = counted[-last] if 0 < last <= len(counted) else (0 if last else len(messages))
        start = _with_calls(messages, start)
        stay = [(i, message) for i, message in enumerate(messages) if i >= start or i in system]
        _keep_turn(each, [i for i, _ in stay])
        each.put(list(stay))


def _with_calls(messages: list[Any], start: int) -> int:
    """Return the index of the first message to keep, so that the calls of all kept results are kept, too."""
    while True:
        first = start
        needed: set[tuple[Any, str]] = set()
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if index >= start:
                needed |= {(message.get("source"), str(result.get("call_id"))) for result in results_of(message)}
            source = None if message.get("type") == "AssistantMessage" else message.get("source")
            if made := {(source, str(call.get("id"))) for call in calls_of(message)} & needed:
                needed -= made
                first = min(first, index)
        if first == start:
            return start
        start = first  # between a call and its result in a thread may stand results of others


def _keep_turn(each: Words, stay: list[int]) -> None:
    """Keep whose turn it is in a swarm when the handover message is removed; ``stay`` has those that are not."""
    if each.kind != "thread" or "current_speaker" not in (manager := manager_of(each.owner)):
        return
    handoffs = [(i, message) for i, message in enumerate(each.messages) if message.get("type") == "HandoffMessage"]
    if handoffs and handoffs[-1][0] not in stay and handoffs[-1][1]["target"] in each.owner.participants:
        manager["current_speaker"] = handoffs[-1][1]["target"]


def seed(tree: Any, agent: str, texts: tuple[object, ...], memory: str | None) -> None:
    """Add texts to the memory of an agent."""
    for text in texts:
        if not isinstance(text, str) or not text:
            raise InvalidArgument(f"{text!r} is not a text to remember", path="texts")
    node = find(tree, agent)
    inner = [other.parts for other in nodes(tree) if other.parts != node.parts and is_below(other.parts, node.parts)]
    found = {
        path: value
        for path, value in beside_of(tree).items()
        if is_array(value)
        and is_below(path, join(node.parts, "memory"))
        and not any(is_below(path, other) for other in inner)
        and memory in (None, path.rpartition("/")[2])
    }
    if len(found) != 1:
        named = ", ".join(repr(path.rpartition("/")[2]) for path in found)
        what = (
            f"has more than one memory; give memory= one of {named}"
            if found
            else f"has no ListMemory in this state, {_memories(tree)}; where the agent is built, give it "
            "memory=[ListMemory(memory_contents=[...])], and it begins with these"
        )
        raise InvalidArgument(what, path=f"agent {agent!r}")
    [contents] = found.values()
    contents += [{"content": text, "mime_type": {"known": "text/plain"}, "metadata": None} for text in texts]


def _memories(tree: Any) -> str:
    """Return a text that lists the agents with memories. A shared memory is listed with its first agent."""
    owners = [node for node in nodes(tree) for path in beside_of(tree) if is_below(path, join(node.parts, "memory"))]
    found = dict.fromkeys(repr(node.path or node.name) for node in owners)
    return f"which has those of {', '.join(found)} (and of those who share them)" if found else "which has none at all"


def redact(tree: Any, pattern: object, replacement: object) -> None:
    """Replace matches of a regular expression in all messages, calls and memories."""
    if not isinstance(replacement, str) or not replacement:
        raise InvalidArgument(f"is {replacement!r}; it must be a text that is not empty", path="replacement")
    if not isinstance(pattern, str | re.Pattern) or not pattern:
        raise InvalidArgument(f"is {pattern!r}; it must be a regular expression", path="pattern")
    try:
        found: re.Pattern[str] = re.compile(cast("str | re.Pattern[str]", pattern))
    except (re.error, TypeError) as error:
        raise InvalidArgument(f"is not a regular expression: {error}", path="pattern") from error
    _Redaction(found, replacement).run(tree)


class _Redaction:
    """Replaces matches of a pattern in texts."""

    def __init__(self, pattern: re.Pattern[str], replacement: str) -> None:
        self._pattern, self._replacement = pattern, replacement

    def run(self, tree: Any) -> None:
        for each in words(tree):
            exact = {item["index"]: item["memories"] for item in each.recalled}
            for index, message in enumerate(each.messages):
                self.message(message, exact.get(index))
        for node in nodes(tree):
            if node.is_team and "facts" in (manager := manager_of(node)):
                manager.update({key: self.text(manager[key]) for key in ("task", "facts", "plan")})
            elif is_object(node.state) and is_array(node.state.get("history")):
                node.state["history"] = self.anything(node.state["history"], keep=("role", "type", "id"))
        for path, value in beside_of(tree).items():
            if is_object(value) and is_array(stops := value.get("stop_messages")):
                for stop in stops:
                    self.message(stop, None)
            elif "memory" in path.split("/"):
                beside_of(tree)[path] = self.memories(value)

    def message(self, message: dict[str, Any], exact: list[Any] | None) -> None:
        """Redact a message and its exact memories, in place."""
        each_call(message, self._call)
        for shown in message["context"] if is_array(message.get("context")) else ():
            self.message(shown, None)
        calling = bool(calls_of(message) or results_of(message)) or message.get("type") == "SelectSpeakerEvent"
        for key, value in list(message.items()):
            if key in NOT_TEXT or key in ("context", "tool_calls", "results") or (key == "content" and calling):
                continue
            if message.get("type") == MEMORIES and key == "content":
                self._recalled(value, exact)
            elif key == "content" and is_array(value):
                message[key] = [
                    item if is_object(item) and set(item) == IMAGE else self.anything(item) for item in value
                ]
            else:
                message[key] = self.anything(value)

    def _call(self, item: dict[str, Any]) -> None:
        if isinstance(written := item.get("arguments"), str):
            item["arguments"] = self._json(written) or self._plain(written)
        if isinstance(told := item.get("content"), str):
            item["content"] = self.text(told)

    def _recalled(self, memories: list[Any], exact: list[Any] | None) -> None:
        for index, memory in enumerate(memories):
            if exact is not None and index < len(exact):
                if (redacted := self._memory(exact[index])) is None:
                    continue
                exact[index] = redacted
            memory["content"] = self.anything(memory.get("content"))
            memory["metadata"] = self.anything(memory.get("metadata"))

    def memories(self, value: Any) -> Any:
        """Redact the stored form of a memory: a list of contents, or the state of a user's own memory class."""
        if is_object(value) and LEFT in value:
            return {LEFT: self.memories(value[LEFT])}
        if not is_array(value):
            return self.anything(value)
        return [redacted if (redacted := self._memory(item)) is not None else item for item in value]

    def _memory(self, memory: Any) -> Any:
        """Redact an exact memory. Return ``None`` if its content is not text."""
        if not is_object(memory) or "content" not in memory:
            return self.anything(memory)
        content = memory["content"]
        if is_object(content) and "image" in content:
            return None
        if is_object(content) and isinstance(data := content.get("bytes"), str):
            try:
                text = b64decode(data).decode()
            except ValueError:
                return None
            content = {"bytes": b64encode(self.text(text).encode()).decode()}
        else:
            content = self.anything(content)
        return {**memory, "content": content, "metadata": self.anything(memory.get("metadata"))}

    def anything(self, value: Any, keep: tuple[str, ...] = ()) -> Any:
        """Redact all texts in a value. Keys stay."""
        if isinstance(value, str):
            return self.text(value)
        if is_object(value):
            return {key: item if key in keep else self.anything(item, keep) for key, item in value.items()}
        return [self.anything(item, keep) for item in value] if is_array(value) else value

    def text(self, text: str) -> str:
        """Redact a text. If it is JSON, also redact escaped texts and numbers in it."""
        return self._plain(self._json(text) or text)

    def _plain(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._replacement if match.group() else "", text)

    def _json(self, text: str) -> str | None:
        """Redact a text that is a JSON object or array. Return ``None`` for any other text."""
        if not text.lstrip().startswith(("{", "[")):
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        redacted = self._inside(value)
        return text if redacted == value else json.dumps(redacted, ensure_ascii=False)

    def _inside(self, value: Any) -> Any:
        if is_object(value):
            return {key: self._inside(item) for key, item in value.items()}
        if is_array(value):
            return [self._inside(item) for item in value]
        if isinstance(value, str):
            return self.text(value)
        if type(value) in (int, float) and (changed := self._plain(str(value))) != str(value):
            return changed
        return value
