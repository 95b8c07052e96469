"""Pair tool calls with their results. A model needs the result of each call right after the call."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from midturn.autogen.edits.tree import words
from midturn.errors import StateInvalid
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from midturn.autogen.edits.tree import Words

REQUESTS = ("AssistantMessage", "ToolCallRequestEvent")
RESULTS = ("FunctionExecutionResultMessage", "ToolCallExecutionEvent")


def items_of(message: Any, types: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the calls or the results in a message."""
    content = message.get("content") if is_object(message) and message.get("type") in types else None
    return [item for item in content if is_object(item)] if is_array(content) else []


def calls_of(message: Any) -> list[dict[str, Any]]:
    """Return the calls in a message."""
    return items_of(message, REQUESTS)


def results_of(message: Any) -> list[dict[str, Any]]:
    """Return the results in a message."""
    return items_of(message, RESULTS)


def broken(tree: Any) -> Iterator[tuple[str, str, str]]:
    """Yield calls without results, results without calls, and messages without content: path, id, problem."""
    for each in words(tree):
        yield from _in_context(each) if each.kind == "context" else _in_thread(each)


def _in_context(each: Words) -> Iterator[tuple[str, str, str]]:
    open_: dict[str, str] = {}
    end: dict[str, Any] = {}
    for index, message in enumerate([*each.messages, end]):
        at = f"{each.at}[{index}]"
        for result in results_of(message):
            if open_.pop(call := str(result.get("call_id")), None) is None:
                yield at, call, f"the result {call!r} has no call right before it"
        if not results_of(message):
            for call, where in open_.items():
                yield where, call, f"the call {call!r} has no result right after it"
            open_ = {str(call.get("id")): at for call in calls_of(message)}
        if is_array(message.get("content")) and not message["content"]:
            yield at, "", "has no content"


def _in_thread(each: Words) -> Iterator[tuple[str, str, str]]:
    open_: dict[tuple[Any, str], str] = {}
    for index, message in enumerate(each.messages):
        at, source = f"{each.at}[{index}]", message.get("source")
        for call in calls_of(message):
            open_[source, str(call.get("id"))] = at
        for result in results_of(message):
            if open_.pop((source, call_id := str(result.get("call_id"))), None) is None:
                yield at, call_id, f"the result {call_id!r} has no call before it"
        if message.get("type") in (*REQUESTS, *RESULTS) and message.get("content") == []:
            yield at, "", "has no content"
        asked, told = message.get("tool_calls"), message.get("results")
        if is_array(asked) and is_array(told):
            ids = Counter(str(call.get("id")) for call in asked), Counter(str(each.get("call_id")) for each in told)
            for call_id in (ids[0] - ids[1]) + (ids[1] - ids[0]):
                yield at, call_id, f"{call_id!r} is not both a call and a result"
    for (_, call_id), at in open_.items():
        yield at, call_id, f"the call {call_id!r} has no result after it"


def paired(thread: list[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the ``id()`` of each result in a thread, and its call. Call ids are not enough: some models repeat them."""
    open_: dict[tuple[Any, Any], dict[str, Any]] = {}
    for message in thread:
        source = message.get("source")
        open_ |= {(source, call.get("id")): call for call in calls_of(message)}
        for result in results_of(message):
            call = open_.pop((source, result.get("call_id")), None)
            if call is not None:
                yield id(result), call


def check(tree: Any, before: Counter[str]) -> None:
    """Check that no call has lost its result, and no result its call.

    Pairs that were broken ``before`` are allowed. An interruption leaves a call without a result, and the next turn
    answers the call first.

    Raises:
        StateInvalid: a pair was broken; ``path`` names the message.
    """
    left = before.copy()
    for at, call, what in broken(tree):
        left[call] -= 1
        if left[call] < 0:
            raise StateInvalid(what, path=at)


def count_broken(tree: Any) -> Counter[str]:
    """Count how often each call or result is broken."""
    return Counter(call for _, call, _ in broken(tree))
