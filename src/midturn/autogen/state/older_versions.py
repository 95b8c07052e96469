"""Convert states that older versions of AutoGen saved, 0.4.9 and later, to the form of today.

``version`` is 1.0.0 in all of them. So a state counts as old if a field of today is missing in all its messages. If the
field is missing only in some messages, the state is damaged: it is not converted, and is rejected later.
"""

from __future__ import annotations

import re
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from midturn.autogen.state.validation import inside
from midturn.errors import StateInvalid
from midturn.record.codec import is_array, is_object
from midturn.record.odd import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from midturn.autogen.state.save_state import Path
    from midturn.record.codec import Json

UNKNOWN_TIME = "1970-01-01T00:00:00Z"
"""The time of messages that were saved without one."""

STOP_AGENT = "DiGraphStopAgent"
"""A participant of every graph until 0.6.2, which spoke at the end of the graph."""

GRAPH_KEYS = {"active_nodes", "pending_execution", "active_node_count", "default_start_executed"}
"""The fields in which a graph's manager stored the state of its nodes before 0.6."""

PYTHON_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:\.\d{6})?)\+00:00")


def modernize(state: Json, lists: Iterable[Path], graphs: Mapping[Path, tuple[str, dict[str, Any]]]) -> Json:
    """Return a copy of a state in the form of today.

    ``lists`` are the paths of the lists of messages. ``graphs`` has, for each graph, the name of its manager and the
    state of its nodes before it runs.

    Raises:
        StateInvalid: a graph was not finished, and its progress cannot be converted.
    """
    state = unpacked(packed(state))  # a copy in which nothing is shared
    found = [items for path in lists if is_array(items := inside(state, path)) and all(map(is_object, items))]
    _modernize_messages(found)
    for path, (manager, beginning) in graphs.items():
        _modernize_graph(state, path, manager, beginning)
    return state


def _modernize_messages(lists: list[list[dict[str, Any]]]) -> None:
    messages = [message for items in lists for message in items]
    if not any("created_at" in message for message in messages):  # before 0.6
        for message in messages:
            message["created_at"] = UNKNOWN_TIME
            if str(message.get("type")).startswith("StructuredMessage"):  # before 0.5.3
                message.setdefault("format_string", None)
    elif all(PYTHON_TIME.fullmatch(str(message.get("created_at"))) for message in messages):  # 0.6
        for message in messages:
            message["created_at"] = PYTHON_TIME.sub(r"\1T\2Z", message["created_at"])
    if any("id" in message for message in messages):
        return
    for items in lists:  # before 0.6.2
        seen: Counter[bytes] = Counter()
        for message in items:
            if message.get("type") == "ToolCallSummaryMessage" and not {"tool_calls", "results"} & message.keys():
                message |= {"tool_calls": [], "results": []}  # before 0.6.1
            said = orjson.dumps(message, option=orjson.OPT_SORT_KEYS)
            message["id"] = _id(said, seen[said])
            seen[said] += 1


def _id(said: bytes, nth: int) -> str:
    """Return an id that is the same each time the state is read, and in all lists that have the message."""
    return str(UUID(bytes=blake2b(b"%d %s" % (nth, said), digest_size=16).digest()))


def _modernize_graph(state: Json, path: Path, name: str, beginning: dict[str, Any]) -> None:
    agents = inside(state, (*path, "agent_states"))
    if not is_object(agents) or STOP_AGENT not in agents:
        return
    manager: dict[str, Any] = agents.get(name) or {}
    at, thread = ".".join(("$.state", *path, "agent_states", name)), inside(manager, ("message_thread",))
    if not is_array(thread) or not thread or inside(thread[-1], ("source",)) != STOP_AGENT:
        raise StateInvalid(
            "belongs to a graph that AutoGen before 0.6.4 did not run to its end, and its progress cannot be "
            "converted; run the graph to its end there, or start another session",
            path=at,
        )
    del agents[STOP_AGENT]
    agents[name] = {key: value for key, value in manager.items() if key not in GRAPH_KEYS} | beginning
