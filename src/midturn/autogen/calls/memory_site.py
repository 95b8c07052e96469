"""Where a memory is asked or told something, and how that is recorded and answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autogen_core.memory import MemoryQueryResult, UpdateContextResult

from midturn.autogen import private
from midturn.autogen.calls.sites import Site
from midturn.autogen.state import capture
from midturn.framework import Answer, Request
from midturn.journal.recorded import digest
from midturn.record.codec import is_array

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from autogen_core.memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySite(Site):
    """Where a memory is asked or told something."""

    memory: Memory

    async def update_context(self, context: Any, real: Callable[[], Awaitable[Any]]) -> UpdateContextResult:
        async def make(_: Any) -> Answer:
            before = await _messages(context)
            result = await real()
            after = await _messages(context)
            grown = after[: len(before)] == before
            added = [message.model_dump() for message in after[len(before) if grown else 0 :]]
            value = {"added": added, **_memories(result.memories), **({} if grown else {"anew": True})}
            return Answer(value=value, native=result)

        answer = await self.make(self._request("update_context", None), make, self.memory)
        if answer.native is not None:
            found: UpdateContextResult = answer.native
            return found
        if "anew" in answer.value:
            await context.clear()
        for message in answer.value["added"]:
            await context.add_message(capture.LLM_MESSAGE.validate_python(message))
        return UpdateContextResult(memories=MemoryQueryResult.model_validate({"results": answer.value["results"]}))

    async def query(self, query: Any, real: Callable[[], Awaitable[Any]]) -> MemoryQueryResult:
        async def make(_: Any) -> Answer:
            result = await real()
            return Answer(value=_memories(result), native=result)

        answer = await self.make(self._request("query", query), make, self.memory)
        if answer.native is not None:
            found: MemoryQueryResult = answer.native
            return found
        return MemoryQueryResult.model_validate({"results": answer.value["results"]})

    async def change(self, name: str, content: Any, real: Callable[[], Awaitable[None]]) -> None:
        async def make(_: Any) -> Answer:
            await real()
            return Answer(value={"changed": True}, native=True)

        request = self._request(name, content, told=lambda _, failed: {"changed": not failed})
        await self.make(request, make, self.memory)

    def _request(self, name: str, asked: Any, told: Callable[[str, bool], dict[str, Any]] | None = None) -> Request:
        shown = asked if isinstance(asked, str | None) else asked.model_dump(mode="json")
        return Request(
            path=self.path,
            agent=self.agent,
            what="memory",
            key=digest(name, shown),
            name=name,
            arguments={"content": shown},
            effect="unsafe" if told else "read",
            told=told,
        )


async def _messages(context: Any) -> list[Any]:
    """What is in a context, not only what it shows."""
    found = getattr(context, private.CONTEXT_MESSAGES, None)
    return list(found) if is_array(found) else list(await context.get_messages())


def _memories(result: MemoryQueryResult) -> dict[str, Any]:
    return result.model_dump(mode="json")
