"""A model that answers at once with prepared text, so that only the overhead is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogen_core.models import CreateResult, ModelInfo, RequestUsage

from midturn.testing import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Instant(ScriptedModel):
    """Answers with prepared texts, with or without vision."""

    def __init__(self, answers: Iterator[str], *, vision: bool) -> None:
        super().__init__(self._next)
        self._answers, self._vision = answers, vision

    def _next(self, _: Any) -> CreateResult:
        usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
        return CreateResult(finish_reason="stop", content=next(self._answers), usage=usage, cached=False)

    @property
    def model_info(self) -> ModelInfo:
        return {**super().model_info, "vision": self._vision}


def instant(answers: Iterator[str], *, vision: bool = True) -> ScriptedModel:
    """Return a model that answers at once."""
    return _Instant(answers, vision=vision)
