"""A scripted model: it derives its answers from the messages by rule."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Literal

from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from autogen_core import CancellationToken
    from autogen_core.tools import Tool, ToolSchema
    from pydantic import BaseModel

UNKNOWN = "I do not know: nothing in this conversation says so."

_CONTEXT = 32_768
_PREFIX = re.compile(r"^(?:please )?(?:remember|noted)\b(?: that)?[:,]?\s*", re.IGNORECASE)
_PREFERENCE = re.compile(r"^(?P<who>.+?) (?:also )?prefers (?P<what>.+)$", re.IGNORECASE)
_NO_TOPIC = frozenset(
    {"about", "customer", "does", "have", "know", "remember", "tell", "that", "told", "what", "which"}
)


def recall(messages: Sequence[LLMMessage]) -> str:
    """Answer a question from the facts that the user stated before, and acknowledge anything else."""
    said = [_text(message) for message in messages if isinstance(message, UserMessage)]
    last = said[-1].strip() if said else ""
    if not last.endswith("?"):
        return f"Noted: {'; '.join(_facts(last)) or last.rstrip('.')}."
    topics = _topics(last)
    found = [fact for text in said for fact in _facts(text) if not topics or topics & _topics(fact)]
    return _sentences(found) or UNKNOWN


class ScriptedChatCompletionClient(ChatCompletionClient):
    """Answers with ``answer(messages)`` after ``delay`` seconds. A stream spreads the delay over its words."""

    def __init__(
        self, answer: Callable[[Sequence[LLMMessage]], str | CreateResult] = recall, *, delay: float = 0.0
    ) -> None:
        self._answer = answer
        self._delay = delay
        self._used = RequestUsage(prompt_tokens=0, completion_tokens=0)

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = [],
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        await _sleep(self._delay, cancellation_token)
        return self._count(self._result(messages))

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = [],
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        result = self._result(messages)
        words: list[str] = re.findall(r"\s*\S+\s*", result.content) if isinstance(result.content, str) else []
        pause = self._delay / (len(words) + 1)
        for word in words:
            await _sleep(pause, cancellation_token)
            yield word
        await _sleep(pause, cancellation_token)
        yield self._count(result)

    async def close(self) -> None:
        pass

    def actual_usage(self) -> RequestUsage:
        return self._used

    def total_usage(self) -> RequestUsage:
        return self._used

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = []) -> int:
        return sum(_tokens(message.content) for message in messages)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = []) -> int:
        return _CONTEXT - self.count_tokens(messages)

    @property
    def capabilities(self) -> ModelInfo:
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        return ModelInfo(
            vision=True,
            function_calling=True,
            json_output=True,
            structured_output=True,
            family=ModelFamily.UNKNOWN,
        )

    def _result(self, messages: Sequence[LLMMessage]) -> CreateResult:
        answer = self._answer(messages)
        if isinstance(answer, CreateResult):
            return answer
        usage = RequestUsage(prompt_tokens=self.count_tokens(messages), completion_tokens=_tokens(answer))
        return CreateResult(finish_reason="stop", content=answer, usage=usage, cached=False)

    def _count(self, result: CreateResult) -> CreateResult:
        """Count the tokens of a completed call."""
        self._used = RequestUsage(
            prompt_tokens=self._used.prompt_tokens + result.usage.prompt_tokens,
            completion_tokens=self._used.completion_tokens + result.usage.completion_tokens,
        )
        return result


async def _sleep(seconds: float, token: CancellationToken | None) -> None:
    pause = asyncio.ensure_future(asyncio.sleep(seconds))
    if token is not None:
        token.link_future(pause)
    await pause


def _text(message: UserMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return " ".join(part for part in message.content if isinstance(part, str))


def _tokens(content: object) -> int:
    """Count words as tokens, which is good enough when nobody pays."""
    return len(str(content).split())


def _facts(text: str) -> list[str]:
    """Return the facts and preferences that the text states, without "Remember that"."""
    sentences = [sentence.strip() for sentence in re.split(r"(?<=[.!?])\s+|\n", text)]
    return [
        _PREFIX.sub("", sentence).rstrip(".! ")
        for sentence in sentences
        if not sentence.endswith("?") and (_PREFIX.match(sentence) or _PREFERENCE.match(sentence))
    ]


def _topics(text: str) -> set[str]:
    """Return the words that carry the meaning. Words for channel, contact and preference count as one topic."""
    words: set[str] = set(re.findall(r"[a-z]{4,}", text.lower())) - _NO_TOPIC
    return {"prefer" if word.startswith(("channel", "contact", "prefer", "reach")) else word for word in words}


def _sentences(facts: Sequence[str]) -> str:
    """Return the facts as prose. Preferences of the same person become one sentence."""
    wishes: dict[str, list[str]] = {}
    others: list[str] = []
    for fact in dict.fromkeys(facts):
        preference = _PREFERENCE.match(fact)
        if preference is None:
            others.append(fact)
            continue
        known = wishes.setdefault(preference["who"].lower(), [])
        known[:] = [what for what in known if what not in preference["what"]] + [preference["what"]]
    joined = [f"{who} prefers {', and '.join(what)}" for who, what in wishes.items()]
    return " ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in joined + others)
