"""A model that answers at once with prepared text, so that only the overhead is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogen_core.models import CreateResult, RequestUsage

from midturn.demo.scripted_model import ScriptedChatCompletionClient

if TYPE_CHECKING:
    from collections.abc import Iterator


def instant(answers: Iterator[str]) -> ScriptedChatCompletionClient:
    def answer(_: Any) -> CreateResult:
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        return CreateResult(finish_reason="stop", content=next(answers), usage=usage, cached=False)

    return ScriptedChatCompletionClient(answer=answer)
