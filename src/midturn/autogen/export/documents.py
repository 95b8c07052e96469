"""Write transcripts in the forms of other libraries."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from midturn.autogen.export.transcript import Picture, Report, Text, Thought, ToolCall, ToolResult, transcripts
from midturn.framework import Exported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from midturn.autogen.export.transcript import Part, Said, Transcript
    from midturn.framework import Destination
    from midturn.record.codec import Json

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names that the API of chat completions accepts."""


def export(tree: Any, *, to: Destination, session: str) -> Exported:
    """Return the conversations in a captured state as documents for another library."""
    report = Report()
    found = transcripts(tree, report)
    documents = {(each.is_thread, each.name): _document(each, to, session, report) for each in found}
    return Exported(
        agents={name: document for (is_thread, name), document in documents.items() if not is_thread},
        threads={name: document for (is_thread, name), document in documents.items() if is_thread},
        left_out=report.lines,
    )


def _document(transcript: Transcript, to: Destination, session: str, report: Report) -> Json:
    if to == "agent-framework":
        return _agent_framework(transcript, session)
    if to == "responses":
        return [item for said in transcript.messages for item in _items(transcript, said, report)]
    return [message for said in transcript.messages for message in _messages(said, report)]


def _agent_framework(transcript: Transcript, session: str) -> Json:
    """Return what ``AgentSession.from_dict()`` of Microsoft Agent Framework reads."""
    messages: list[Json] = []
    for said in transcript.messages:
        contents: list[Json] = [_content(part) for part in said.parts]
        message: dict[str, Json] = {"type": "message", "role": said.role, "contents": contents}
        if said.author:
            message["author_name"] = said.author
        messages.append(message)
    return {
        "type": "session",
        "session_id": f"{session}/{transcript.name}",
        "service_session_id": None,
        "state": {"in_memory": {"messages": messages}},
    }


def _content(part: Part) -> Json:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Thought(text):
            return {"type": "text_reasoning", "text": text}
        case Picture():
            return {"type": "data", "uri": part.uri, "media_type": part.media_type}
        case ToolCall(id_, name, arguments):
            return {"type": "function_call", "call_id": id_, "name": name, "arguments": arguments}
        case ToolResult(id_, _, text, is_error):
            items: list[Json] = [{"type": "text", "text": text}]
            found: dict[str, Json] = {"type": "function_result", "call_id": id_, "result": text, "items": items}
            return found | ({"exception": text} if is_error else {})


def _items(transcript: Transcript, said: Said, report: Report) -> Iterator[Json]:
    """Yield the items of OpenAI's Responses API for a message."""
    shown = _shown(said, report)
    if any(isinstance(part, Picture) for part in shown):
        content: Json = [
            {"type": "input_image", "image_url": part.uri, "detail": "auto"}
            if isinstance(part, Picture)
            else {"type": "input_text", "text": part.text}
            for part in _spoken(transcript, said, shown)
        ]
        # Only a user can show an image to a model.
        yield {"type": "message", "role": "user", "content": content}
    elif shown:
        text = "\n".join(part.text for part in _spoken(transcript, said, shown) if isinstance(part, Text))
        yield {"type": "message", "role": said.role, "content": text}
    for part in said.parts:
        if isinstance(part, ToolCall):
            yield {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.arguments}
        elif isinstance(part, ToolResult):
            yield {"type": "function_call_output", "call_id": part.id, "output": part.text}


def _messages(said: Said, report: Report) -> Iterator[Json]:
    """Yield the messages of OpenAI's chat completions for a message."""
    shown = _shown(said, report)
    calls: list[Json] = [
        {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": part.arguments}}
        for part in said.parts
        if isinstance(part, ToolCall)
    ]
    named: dict[str, Json] = {"name": said.author} if _NAME.fullmatch(said.author) and said.role != "system" else {}
    if any(isinstance(part, Picture) for part in shown):
        content: Json = [
            {"type": "image_url", "image_url": {"url": part.uri}}
            if isinstance(part, Picture)
            else {"type": "text", "text": part.text}
            for part in shown
        ]
        yield {"role": "user", "content": content} | named
    elif shown or calls:
        text = "\n".join(part.text for part in shown if isinstance(part, Text))
        message: dict[str, Json] = {"role": said.role, "content": text if shown else None} | named
        if calls:
            message["tool_calls"] = calls
        yield message
    for part in said.parts:
        if isinstance(part, ToolResult):
            yield {"role": "tool", "tool_call_id": part.id, "content": part.text}


def _shown(said: Said, report: Report) -> list[Text | Picture]:
    """Return the parts of a message that people see, for forms without a place for thoughts."""
    if any(isinstance(part, Thought) for part in said.parts):
        report.add("the reasoning of models: OpenAI takes back only reasoning of its own")
    return [part for part in said.parts if isinstance(part, Text | Picture)]


def _spoken(transcript: Transcript, said: Said, shown: list[Text | Picture]) -> list[Text | Picture]:
    """Return parts that say who spoke, for a form without names, unless the role says it."""
    if said.author in ("", "user") or (said.role == "assistant" and not transcript.is_thread):
        return shown
    return [Text(f"{said.author}: {part.text}") if isinstance(part, Text) else part for part in shown]
