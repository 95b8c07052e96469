"""Read the conversations in a captured state: what each agent's model saw, and the threads of teams."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from midturn.autogen.edits.call_pairs import REQUESTS, RESULTS, calls_of, results_of
from midturn.autogen.edits.tree import join, nodes, unquote, words
from midturn.autogen.state.repairs import INTERRUPTED
from midturn.record.codec import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from midturn.autogen.edits.tree import Node, Words

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

TEAM = "team"
"""The name of the outermost team, whose own name no state contains."""
AGENT = "agent"
"""The name of an agent that is the whole state and has not said anything yet."""
NO_TURN = {"type", "version", "message_thread"}
"""Fields of a team's manager that do not say whose turn it is."""
SIGNATURES = {"iVBORw": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""The types of images by the beginning of their base64."""


@dataclass(frozen=True, slots=True)
class Text:
    """Text that somebody said."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """The reasoning of a model."""

    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """An image."""

    data: str
    """The bytes in base64."""

    @property
    def media_type(self) -> str:
        """Return the MIME type, which the first bytes show."""
        return next((kind for start, kind in SIGNATURES.items() if self.data.startswith(start)), "image/png")

    @property
    def uri(self) -> str:
        """Return the image as a data URI."""
        return f"data:{self.media_type};base64,{self.data}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. Its id is unique in its transcript."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of the call with the same id."""

    id: str
    name: str
    text: str
    is_error: bool


Part: TypeAlias = Text | Thought | Picture | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Said:
    """One message."""

    role: Role
    author: str
    parts: Sequence[Part]


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation from its beginning. Every call in it has its result right after it."""

    name: str
    """The path of the agent, or of the team whose thread this is."""
    is_thread: bool
    messages: Sequence[Said]


@dataclass(slots=True)
class Report:
    """Sentences about what has no place in a transcript."""

    lines: list[str] = field(default_factory=list[str])

    def add(self, line: str) -> None:
        """Add a sentence once."""
        if line not in self.lines:
            self.lines.append(line)


def transcripts(tree: Any, report: Report) -> list[Transcript]:
    """Return the conversations in a state, those of agents before those of teams."""
    contexts: dict[str, list[Said]] = {}
    threads: dict[str, list[Said]] = {}
    buffers = {each.owner.path: each for each in words(tree) if each.kind == "buffer"}
    used: set[str] = set()
    for each in words(tree):
        used.add(each.at)
        if each.kind == "context":
            name = _agent(each.owner)
            found = contexts.setdefault(name, [])
            found += _in_context(each)
            if not each.owner.is_team and (buffer := buffers.pop(each.owner.path, None)) is not None:
                found += _unread(buffer.messages, report)
        elif each.kind == "thread":
            threads[each.owner.path or TEAM] = list(_in_thread(each, report))
    for path, buffer in buffers.items():
        if not buffer.owner.is_team:
            report.add(f"agent {path!r} keeps no conversation of its own")
        if buffer.messages:
            report.add(f"messages that {path!r} has not read yet: {len(buffer.messages)}")
    _report_turns(tree, report)
    _report_beside(tree, used, report)
    return [
        *(Transcript(name, is_thread=False, messages=_closed(name, said, report)) for name, said in contexts.items()),
        *(Transcript(name, is_thread=True, messages=_closed(name, said, report)) for name, said in threads.items()),
    ]


def _agent(owner: Node) -> str:
    """Return the name of an agent's document. The manager of a team may have a context, too."""
    if owner.is_team:
        return join(owner.path, owner.manager or TEAM)
    return owner.path or owner.name or AGENT


def _in_context(each: Words) -> Iterator[Said]:
    for message in each.messages:
        content, source = message.get("content"), str(message.get("source", ""))
        match message.get("type"):
            case "SystemMessage":
                yield Said("system", "", _parts(content))
            case "AssistantMessage":
                thought = message.get("thought")
                parts: list[Part] = [Thought(thought)] if isinstance(thought, str) and thought else []
                calls = [_call(call) for call in calls_of(message)]
                yield Said("assistant", source, [*parts, *(calls or _parts(content))])
            case "FunctionExecutionResultMessage":
                yield Said("tool", source, [_result(result) for result in results_of(message)])
            case _:
                yield Said("user", source, _parts(content))


def _unread(messages: Sequence[Mapping[str, Any]], report: Report) -> Iterator[Said]:
    """Yield the messages that an agent has not received yet, as its model would see them."""
    for message in messages:
        yield from _told(message, report)
        yield Said("user", str(message.get("source", "")), _parts(message.get("content")))


def _told(message: Mapping[str, Any], report: Report) -> Iterator[Said]:
    """Yield the messages that a handoff carries."""
    context = message.get("context")
    for item in context if is_array(context) else ():
        if is_object(item) and isinstance(item.get("content"), str):
            role: Role = "system" if item.get("type") == "SystemMessage" else "user"
            yield Said(role, str(item.get("source", "")), _parts(item["content"]))
        else:
            report.add("tool calls that a handoff carries")


def _in_thread(each: Words, report: Report) -> Iterator[Said]:
    speakers = set(each.owner.participants)
    skipped = Counter[str]()
    for message in each.messages:
        content, source, kind = message.get("content"), str(message.get("source", "")), str(message.get("type"))
        if kind in REQUESTS:
            yield Said("assistant", source, [_call(call) for call in calls_of(message)])
        elif kind in RESULTS:
            yield Said("tool", source, [_result(result) for result in results_of(message)])
        elif kind == "ThoughtEvent":
            yield Said("assistant", source, [Thought(str(content))])
        elif kind.endswith("Event"):
            skipped[kind] += 1
        else:
            yield Said("assistant" if source in speakers else "user", source, _parts(content))
    for kind, count in skipped.items():
        report.add(f"{count} of the type {kind} in the thread of {each.owner.path or TEAM!r}")


def _parts(content: Any) -> list[Part]:
    if not is_array(content):
        return [Text(content if isinstance(content, str) else _dumped(content))]
    return [
        Picture(item["data"])
        if is_object(item) and isinstance(item.get("data"), str)
        else Text(item if isinstance(item, str) else _dumped(item))
        for item in content
    ]


def _dumped(content: Any) -> str:
    """Return structured content as a model sees it."""
    return json.dumps(content, ensure_ascii=False, default=str)


def _call(call: Mapping[str, Any]) -> ToolCall:
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else _dumped(arguments)
    return ToolCall(str(call.get("id", "")), str(call.get("name", "")), text)


def _result(result: Mapping[str, Any]) -> ToolResult:
    content = result.get("content")
    text = content if isinstance(content, str) else _dumped(content)
    return ToolResult(
        str(result.get("call_id", "")), str(result.get("name", "")), text, is_error=bool(result.get("is_error"))
    )


def _closed(name: str, messages: Sequence[Said], report: Report) -> list[Said]:
    """Return messages in which each call has an id of its own, and its result right after it.

    Providers reject calls without results. Some models repeat ids, or give none.
    """
    answers = _answers(name, messages, report)
    closed: list[Said] = []
    ids: set[str] = set()
    for index, said in enumerate(messages):
        kept: list[Part] = []
        results: list[Part] = []
        for place, part in enumerate(said.parts):
            if isinstance(part, ToolCall):
                id_, found = _new_id(part.id, ids), answers.get((index, place))
                if found is None:
                    report.add(f"the result of the call {part.id!r} of {part.name!r} by {name!r}: there is none")
                    found = ToolResult(id_, part.name, INTERRUPTED, is_error=True)
                kept.append(ToolCall(id_, part.name, part.arguments))
                results.append(ToolResult(id_, part.name, found.text, is_error=found.is_error))
            elif not isinstance(part, ToolResult):
                kept.append(part)
        if kept:
            closed.append(Said(said.role, said.author, kept))
        if results:
            closed.append(Said("tool", said.author, results))
    return closed


def _answers(name: str, messages: Sequence[Said], report: Report) -> dict[tuple[int, int], ToolResult]:
    """Return the results of calls, by the places of the calls. A call without a result is not among them."""
    answers: dict[tuple[int, int], ToolResult] = {}
    unanswered: dict[str, list[tuple[int, int]]] = {}
    for index, said in enumerate(messages):
        for part in said.parts:
            if isinstance(part, ToolCall):
                unanswered.pop(part.id, None)  # who calls again does not wait for the result any more
            elif isinstance(part, ToolResult):
                if places := unanswered.get(part.id):
                    answers[places.pop(0)] = part
                else:
                    report.add(f"the result {part.id!r} of {part.name!r} for {name!r}, which has no call before it")
        for place, part in enumerate(said.parts):
            if isinstance(part, ToolCall):
                unanswered.setdefault(part.id, []).append((index, place))
    return answers


def _new_id(wanted: str, ids: set[str]) -> str:
    number, found = 1, wanted or "call"
    while found in ids:
        number += 1
        found = f"{wanted or 'call'}-{number}"
    ids.add(found)
    return found


def _report_turns(tree: Any, report: Report) -> None:
    for node in nodes(tree):
        if node.is_team and node.manager is not None and is_object(manager := node.members[node.manager]):
            facts = {key: value for key, value in manager.items() if key not in NO_TURN}
            report.add(f"whose turn it is in {node.path or TEAM!r}: {_dumped(facts)}")


def _report_beside(tree: Any, used: set[str], report: Report) -> None:
    beside = tree.get("beside")
    for path in beside if is_object(beside) else ():
        if not any(at == f"$.beside.{path}" or at.startswith(f"$.beside.{path}.") for at in used):
            report.add(f"kept beside AutoGen's state: {unquote(path)}")
