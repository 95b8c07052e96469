"""A model whose answers are a function of what it is shown: a lost or doubled message changes all that follow."""

import asyncio
import hashlib
import inspect

from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage


def digest(messages):
    """A short text that differs when any message differs."""
    shown = "\n".join(message.model_dump_json() for message in messages)
    return hashlib.blake2b(shown.encode(), digest_size=4).hexdigest()


def remembered(messages):
    """The usual answer: how many messages there were, and which."""
    return f"{len(messages)} messages, {digest(messages)}"


def calls(*wanted):
    """An answer that calls tools: pairs of a name and a JSON object."""
    return CreateResult(
        finish_reason="function_calls",
        content=[
            FunctionCall(id=f"call-{name}-{i}", name=name, arguments=arguments)
            for i, (name, arguments) in enumerate(wanted)
        ],
        usage=RequestUsage(prompt_tokens=7, completion_tokens=3),
        cached=False,
    )


class Scripted(ChatCompletionClient):
    """``answer(messages)`` is a text or a CreateResult, or awaits one; ``seen`` has the messages of every call."""

    def __init__(self, answer=remembered, *, delay=0.0):
        self._answer = answer
        self._delay = delay
        self.seen = []

    async def create(
        self,
        messages,
        *,
        tools=(),
        tool_choice="auto",
        json_output=None,
        extra_create_args=None,
        cancellation_token=None,
    ):
        self.seen.append(list(messages))
        if self._delay:
            await asyncio.sleep(self._delay)
        answer = self._answer(messages)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, CreateResult):
            return answer
        usage = RequestUsage(prompt_tokens=len(messages), completion_tokens=2)
        return CreateResult(finish_reason="stop", content=answer, usage=usage, cached=False)

    async def create_stream(self, messages, **options):
        result = await self.create(messages, **options)
        if isinstance(result.content, str):
            for word in result.content.split():
                yield word
        yield result

    async def close(self):
        pass

    def actual_usage(self):
        return RequestUsage(0, 0)

    def total_usage(self):
        return RequestUsage(0, 0)

    def count_tokens(self, messages, *, tools=()):
        return len(messages)

    def remaining_tokens(self, messages, *, tools=()):
        return 1000 - len(messages)

    @property
    def capabilities(self):
        return self.model_info

    @property
    def model_info(self):
        return ModelInfo(vision=True, function_calling=True, json_output=True, family="unknown", structured_output=True)
