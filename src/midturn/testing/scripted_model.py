"""A model for tests, whose answers follow from the messages that it gets."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from hashlib import blake2b
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from autogen_core import FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    ModelInfo,
    RequestUsage,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    from autogen_core import CancellationToken
    from autogen_core.tools import Tool, ToolSchema
    from pydantic import BaseModel

    from midturn.record.codec import Json

CONTEXT = 32_768
"""Number of tokens that the model says it can read."""
SHOWN = 200
"""Number of characters of a message that an error shows."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, as a scripted answer: ``ToolCall("refund", {"order": "A1"})``."""

    name: str
    arguments: Mapping[str, Json] = field(default_factory=dict[str, "Json"])


Reply: TypeAlias = "str | ToolCall | Sequence[ToolCall] | CreateResult"
"""An answer: a text, a call of a tool or several, or a result of AutoGen's own type."""
Script: TypeAlias = "Mapping[str, Reply] | Callable[[Sequence[LLMMessage]], Reply | Awaitable[Reply]]"
"""The answers, by a text that the last message contains, or a function of all messages."""


class ScriptedModel(ChatCompletionClient):
    """A model client that answers by a script, and counts words as tokens.

    The script is a mapping, or a function that gets the messages and returns the answer. In a mapping, the first key
    that the last message contains decides; the empty key fits every message. The last message is what a user or
    another agent said, or the results of tools.

    A model that only counts its calls gives other answers after a crash, because the calls before it are not repeated.
    This one gives the same answer to the same messages.

    Each answer takes ``delay`` seconds. A stream spreads them over the words.
    """

    def __init__(self, script: Script, *, delay: float = 0.0) -> None:
        self._script = script
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
        return self._count(await self._result(messages))

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
        result = await self._result(messages)
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
        return CONTEXT - self.count_tokens(messages)

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

    async def _result(self, messages: Sequence[LLMMessage]) -> CreateResult:
        script = self._script
        reply = script(messages) if callable(script) else _by_rule(script, messages)
        if isawaitable(reply):
            reply = await reply
        if isinstance(reply, CreateResult):
            return reply
        content = reply if isinstance(reply, str) else _calls(reply, messages)
        return CreateResult(
            finish_reason="stop" if isinstance(content, str) else "function_calls",
            content=content,
            usage=RequestUsage(prompt_tokens=self.count_tokens(messages), completion_tokens=_tokens(content)),
            cached=False,
        )

    def _count(self, result: CreateResult) -> CreateResult:
        """Count the tokens of a completed call."""
        self._used = RequestUsage(
            prompt_tokens=self._used.prompt_tokens + result.usage.prompt_tokens,
            completion_tokens=self._used.completion_tokens + result.usage.completion_tokens,
        )
        return result


def text_of(message: LLMMessage) -> str:
    """Return the text of a message; for the results of tools, all of them, a line each."""
    if isinstance(message, FunctionExecutionResultMessage):
        return "\n".join(result.content for result in message.content)
    if isinstance(message.content, str):
        return message.content
    return " ".join(part for part in message.content if isinstance(part, str))


def _by_rule(rules: Mapping[str, Reply], messages: Sequence[LLMMessage]) -> Reply:
    last = text_of(messages[-1]) if messages else ""
    for text, reply in rules.items():
        if text in last:
            return reply
    raise LookupError(f"the script has no answer to {last[:SHOWN]!r}; it has answers to {', '.join(map(repr, rules))}")


def _calls(reply: object, messages: Sequence[LLMMessage]) -> list[FunctionCall]:
    calls: list[Any] = list(reply) if isinstance(reply, list | tuple) else [reply]  # pyright: ignore[reportUnknownArgumentType]
    if not calls or not all(isinstance(call, ToolCall) for call in calls):
        what = "a text, a ToolCall, a list of them, or a CreateResult"
        raise TypeError(f"a script can return {what}, not {reply!r}")
    shown = repr([message.model_dump(mode="json") for message in messages])  # JSON has no half a character
    asked = blake2b(shown.encode(), digest_size=6).hexdigest()  # the same after a crash
    return [
        FunctionCall(id=f"call-{asked}-{number}", name=call.name, arguments=json.dumps(dict(call.arguments)))
        for number, call in enumerate(calls, start=1)
    ]


async def _sleep(seconds: float, token: CancellationToken | None) -> None:
    pause = asyncio.ensure_future(asyncio.sleep(seconds))
    if token is not None:
        token.link_future(pause)
    await pause


def _tokens(content: object) -> int:
    """Count words as tokens, which is good enough when nobody pays."""
    return len(str(content).split())
