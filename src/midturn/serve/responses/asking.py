"""Requests of clients: a message of a user, or answers to approval requests."""

from __future__ import annotations

import binascii
from base64 import b64decode
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from midturn.autogen.messages.conversion import of_user
from midturn.errors import InvalidArgument
from midturn.record.codec import is_array, is_object
from midturn.serve.answers import Given, is_number

OURS = ("instructions", "prompt", "tools")
"""Fields that a blueprint decides."""


class Conversation(BaseModel):
    """A session, as an object with its id."""

    id: str


class NewResponse(BaseModel):
    """A request for a response. Fields that tune a model are left to the blueprint."""

    model: str
    input: str | list[dict[str, Any]] | None = None
    conversation: str | Conversation | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    instructions: Any = None
    prompt: Any = None
    tools: list[Any] | None = None
    text: dict[str, Any] | None = None

    def check(self) -> None:
        """Reject what the agents would not get.

        Raises:
            InvalidArgument: a field is not supported.
        """
        for name in OURS:
            if getattr(self, name):
                raise InvalidArgument("is not supported: the blueprint decides about it", path=name)
        if self.store is False:
            raise InvalidArgument("is not supported: every turn is stored", path="store")
        format_ = (self.text or {}).get("format")
        if is_object(format_) and format_.get("type", "text") != "text":
            raise InvalidArgument("is not supported: the blueprint decides about it", path="text.format")


class NewConversation(BaseModel):
    """A request for a conversation, which begins with its first response."""

    items: list[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The input of a client: a message of a user, or answers to approval requests."""

    words: str | None = None
    """The whole message, if it is one text."""
    task: Any = None
    answers: dict[str, Given] | None = None
    """The answers, by the ids of the questions."""
    place: tuple[int, int] = (0, 0)
    """The turn that the answers are for, and the number of its items before its requests."""

    @classmethod
    def of(cls, new: NewResponse) -> Asked:
        """Return the input of a client.

        Raises:
            InvalidArgument: it is empty, or something that agents do not get.
        """
        new.check()
        return _asked(new.input)


def _asked(given: str | list[dict[str, Any]] | None) -> Asked:
    if isinstance(given, str):
        return Asked(words=given)
    if not given:
        raise InvalidArgument("is empty", path="input")
    if any(item.get("type") == "mcp_approval_response" for item in given):
        return _answers(given)
    messages = [_parts(item, f"input[{index}]") for index, item in enumerate(given)]
    if len(messages) == 1 and all(isinstance(part, str) for part in messages[0]):
        return Asked(words="\n".join(str(part) for part in messages[0]))
    return Asked(task=[of_user(parts) for parts in messages])


def _answers(items: list[dict[str, Any]]) -> Asked:
    answers: dict[str, Given] = {}
    places: set[tuple[int, int]] = set()
    for index, item in enumerate(items):
        path = f"input[{index}]"
        match item:
            case {"type": "mcp_approval_response", "approval_request_id": str(request), "approve": bool(approve)}:
                turn, first, question = _request(request, path)
                reason = item.get("reason")
                deny = f"deny: {reason}" if isinstance(reason, str) and reason.strip() else "deny"
                if question in answers:
                    raise InvalidArgument("answers a request twice", path=path)
                answers[question] = Given(answer="approve" if approve else deny)
                places.add((turn, first))
            case _:
                raise InvalidArgument("must be an mcp_approval_response, as the others", path=path)
    if len(places) != 1:
        raise InvalidArgument("answers requests of several responses", path="input")
    return Asked(answers=answers, place=places.pop())


def _request(name: str, path: str) -> tuple[int, int, str]:
    """Return the turn, the number of items before and the question of an approval request."""
    kind, _, rest = name.partition("_")
    turn, _, rest = rest.partition("_")
    first, _, question = rest.partition("_")
    if kind != "mcpr" or not question or not all(is_number(each) for each in (turn, first)):
        raise InvalidArgument("is not the id of an approval request", path=f"{path}.approval_request_id")
    return int(turn), int(first), question


def _parts(item: dict[str, Any], path: str) -> list[str | bytes]:
    """Return the parts of a message of a user."""
    if item.get("type", "message") != "message" or item.get("role") != "user":
        raise InvalidArgument(
            "must be a message of a user: the session has the others, and the blueprint has the prompts", path=path
        )
    content = item.get("content")
    if isinstance(content, str):
        return [content]
    found: list[str | bytes] = []
    for index, part in enumerate(content if is_array(content) else ()):
        match part:
            case {"type": "input_text", "text": str(text)}:
                found.append(text)
            case {"type": "input_image", "image_url": str(url)} if url.startswith("data:") and ";base64," in url:
                try:
                    found.append(b64decode(url.partition(",")[2], validate=True))
                except binascii.Error as error:
                    raise InvalidArgument(f"is not base64: {error}", path=f"{path}.content[{index}]") from error
            case _:
                where = f"{path}.content[{index}]"
                raise InvalidArgument("must be an input_text, or an input_image with a data URL", path=where)
    if not found:
        raise InvalidArgument("is empty", path=f"{path}.content")
    return found
