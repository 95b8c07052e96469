"""Rename, alter and drop the tools of a captured state: their calls, results, and own states."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from midturn.autogen.edits import agents
from midturn.autogen.edits.agents import each_call
from midturn.autogen.edits.call_pairs import calls_of, paired, results_of
from midturn.autogen.edits.tree import (
    beside_of,
    drop_parts,
    find,
    is_below,
    join,
    move_parts,
    nodes,
    quote,
    said,
    words,
)
from midturn.errors import InvalidArgument, StateInvalid
from midturn.record import codec
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from midturn.autogen.edits.tree import Node, Words

Fate: TypeAlias = Literal["text", "remove"]
"""The fate of a removed tool's calls."""

Placed: TypeAlias = "list[tuple[int | None, Any]]"


def _scope(tree: Any, agent: str | None) -> Node | None:
    return None if agent is None else find(tree, agent)


def _check_name(name: object, path: str) -> None:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{name!r} is not the name of a tool", path=path)


def named(tree: Any) -> set[str]:
    """Return the names of all agents and of all called tools."""
    found = {node.name for node in nodes(tree) if node.name}
    for message in said(tree, None):
        each_call(message, lambda call: found.add(call["name"]) if isinstance(call.get("name"), str) else None)
    return found


def rename(tree: Any, old: str, new: str, agent: str | None) -> set[str]:
    """Rename a tool in all its calls and in the paths of its state."""
    _check_name(old, "old")
    _check_name(new, "new")
    if old == new:
        return set()
    scope = _scope(tree, agent)
    touched = {old, new}
    for path in _parts(tree, old, scope):
        inner = next((node for node in nodes(tree) if node.parts == f"{path}/agent" and node.name == old), None)
        if inner is not None:  # an agent in a tool has the tool's name
            touched |= agents.rename(tree, inner.path, new)
        else:
            folder, _, name = path.rpartition("/")
            move_parts(tree, path, join(folder, quote(new) + name.removeprefix(quote(old))))
    for message in said(tree, scope):
        each_call(message, lambda call: call.update(name=new) if call.get("name") == old else None)
    return touched


def alter(tree: Any, name: str, change: Callable[[dict[str, Any]], Any], agent: str | None) -> set[str]:
    """Change the arguments of all calls of a tool."""
    _check_name(name, "name")
    altered: dict[str, str] = {}

    def alter_call(call: dict[str, Any]) -> None:
        written = call.get("arguments")
        if call.get("name") == name and isinstance(written, str):
            if written not in altered:
                altered[written] = _altered(name, written, change)
            call["arguments"] = altered[written]

    for message in said(tree, _scope(tree, agent)):
        each_call(message, alter_call)
    return {name}


def _altered(name: str, written: str, change: Callable[[dict[str, Any]], Any]) -> str:
    try:
        before, given = json.loads(written or "{}"), json.loads(written or "{}")
    except ValueError:
        return written  # the tool could not read these arguments either
    if not is_object(given):
        return written
    after = change(given)
    after = given if after is None else after
    if not is_object(after):
        what = f"the function returned a {type(after).__name__}, not a dict of arguments"
        raise StateInvalid(what, path=f"tool {name!r}")
    codec.check(after, f"tool {name!r}")
    return written if after == before else json.dumps(after, ensure_ascii=False)


def drop(tree: Any, name: str, fate: object, agent: str | None) -> set[str]:
    """Remove a tool, its state and its calls. A text about the calls may stay."""
    _check_name(name, "name")
    if fate not in ("text", "remove"):
        raise InvalidArgument(f"is {fate!r}; it can be 'text' or 'remove'", path="calls")
    scope = _scope(tree, agent)
    touched = {name}
    mine = {id(message) for message in said(tree, scope)}
    for each in words(tree):
        dropping = _Dropping(name, text=fate == "text", mine=mine)
        if any(id(message) in mine for message in each.messages):
            each.put(dropping.context(each.messages) if each.kind == "context" else dropping.thread(each))
    for path in _parts(tree, name, scope):
        touched |= {node.name for node in nodes(tree) if node.parts and is_below(node.parts, path) and node.name}
        drop_parts(tree, path)
    return touched


def _parts(tree: Any, name: str, scope: Node | None) -> list[str]:
    """Return the paths of the tool's state, without paths inside others."""
    found: list[str] = []
    for path in beside_of(tree):
        steps = path.split("/")
        for i in range(1, len(steps)):
            own = steps[i].partition("#")[0]
            start = "/".join(steps[: i + 1])
            if own == quote(name) and steps[i - 1] == "tools" and not any(is_below(start, other) for other in found):
                parents = [node for node in nodes(tree) if is_below("/".join(steps[:i]), node.parts)]
                parent = max(parents, key=lambda node: len(node.parts))
                if scope is None or parent.parts == scope.parts:
                    found.append(start)
    return found


def mentions(tree: Any, tool: str) -> int:
    """Return how many calls of a tool are in the conversation, counted by id."""
    ids: set[str] = set()

    def note(call: dict[str, Any]) -> None:
        if call.get("name") == tool:
            ids.add(str(call.get("id", call.get("call_id"))))

    for each in words(tree):
        for message in each.messages:
            each_call(message, note)
    return len(ids)


class _Dropping:
    """Removes the calls of a tool from lists of messages."""

    def __init__(self, tool: str, *, text: bool, mine: set[int]) -> None:
        self._tool, self._text, self._mine = tool, text, mine

    def context(self, messages: list[Any]) -> Placed:
        """Return a context without the calls. In a context, the results follow right after their calls."""
        placed: Placed = []
        index = 0
        while index < len(messages):
            end = index + 1
            while end < len(messages) and results_of(messages[end]):
                end += 1
            group = list(enumerate(messages[index:end], index))
            placed += self._group(group) if any(self._is_of(message) for _, message in group) else group
            index = end
        return placed

    def _is_of(self, message: Any) -> bool:
        return any(self._is(item) for item in [*calls_of(message), *results_of(message)])

    def _group(self, group: list[tuple[int, Any]]) -> Placed:
        """Return a message and its results without the calls. Results without a call go by the tool's name."""
        (index, first), *_ = group
        gone = [call for call in calls_of(first) if call.get("name") == self._tool]
        ids = {call.get("id") for call in gone}
        placed: Placed = []
        told: dict[Any, dict[str, Any]] = {}
        for number, message in group:
            if not results_of(message):
                left = [call for call in calls_of(message) if call not in gone]
                if left or not gone:
                    placed.append((number, {**message, "content": left} if gone else message))
                continue
            told |= {result.get("call_id"): result for result in results_of(message)}
            left = [each for each in results_of(message) if not (each["call_id"] in ids if gone else self._is(each))]
            if left:
                placed.append((number, {**message, "content": left}))
        alone = not any(number == index for number, _ in placed)
        if said := self._words(first, gone, told, alone=alone):
            placed.append((index if alone else None, said))
        return placed

    def _words(self, message: Any, gone: list[Any], told: dict[Any, Any], *, alone: bool) -> dict[str, Any] | None:
        """Return what stays of the calls in a message: a text about them, or the thought that came with them."""
        if self._text and gone:
            text = "\n".join(_sentence(call, told.get(call.get("id"))) for call in gone)
            return {**message, "content": text} if alone else {**message, "content": text, "thought": None}
        if gone and alone and message.get("thought"):
            return {**message, "content": message["thought"], "thought": None}
        return None

    def thread(self, each: Words) -> Placed:
        """Return a thread without the calls. In a thread, events of others can come between a call and its result."""
        answers = dict(paired(each.messages))
        answered = {id(call) for call in answers.values()}
        placed: Placed = []
        for index, message in enumerate(each.messages):
            if id(message) not in self._mine:
                placed.append((index, message))
            elif calls := calls_of(message):
                lost = [_sentence(call, None) for call in calls if self._is(call) and id(call) not in answered]
                placed += self._event(index, message, lost)
            elif results := results_of(message):
                found = [(answers.get(id(each), {"name": self._tool}), each) for each in results if self._is(each)]
                placed += self._event(index, message, [_sentence(call, result) for call, result in found])
            elif (rest := self._other(message)) is not None:
                placed.append((index, rest))
        return placed

    def _is(self, item: dict[str, Any]) -> bool:
        return item.get("name") == self._tool

    def _event(self, index: int, message: dict[str, Any], lines: list[str]) -> Iterator[tuple[int | None, Any]]:
        left = [item for item in message["content"] if not self._is(item)]
        if left:
            yield index, {**message, "content": left}
        if self._text and lines:
            text = {**message, "content": "\n".join(lines), "type": "TextMessage"}
            if left and "id" in message:  # AutoGen before 0.6.2 gave none
                text["id"] = f"{message['id']}-text"
            yield None if left else index, text

    def _other(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return a message that only mentions calls: a summary of calls, or a handover with its context."""
        if is_array(message.get("context")):
            shown = [shown for _, shown in self.context(message["context"])]
            message = {**message, "context": shown} if shown != message["context"] else message
        asked, told = message.get("tool_calls"), message.get("results")
        if not is_array(asked) or not is_array(told) or not any(self._is(call) for call in [*asked, *told]):
            return message
        left = [call for call in asked if not self._is(call)], [result for result in told if not self._is(result)]
        if not left[0] and not left[1]:
            if not self._text:
                return None
            plain = {key: value for key, value in message.items() if key not in ("tool_calls", "results")}
            return {**plain, "type": "TextMessage", "content": message["content"] or _sentence(asked[0], told[0])}
        content = message["content"]
        if not self._text and content == _summary(told):
            content = _summary(left[1]) or content
        return {**message, "content": content, "tool_calls": left[0], "results": left[1]}


def _summary(results: Iterable[dict[str, Any]]) -> str:
    """Return results joined as AutoGen joins them by default."""
    return "\n".join(str(result.get("content")) for result in results)


def _sentence(call: dict[str, Any], result: dict[str, Any] | None) -> str:
    """Return a call and its result as a sentence."""
    what = f"Called {call.get('name')} with {call.get('arguments', '{}')}"
    if result is None:
        return f"{what}; there was no answer"
    failed = ", which failed" if result.get("is_error") else ""
    return f"{what}{failed}: {result.get('content')}"
