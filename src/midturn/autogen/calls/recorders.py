"""Record and answer each kind of call: of models, tools, code executors, humans and memories.

Each attribute of an agent, or of another part, that holds an object to call has a recorder of its own.
"""

from __future__ import annotations

from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core.code_executor import CodeResult
from autogen_core.memory import MemoryContent, MemoryQueryResult, UpdateContextResult
from autogen_core.models import CreateResult
from autogen_core.tools import StaticWorkbench, TextResultContent, ToolResult

from midturn.autogen import private
from midturn.autogen.calls.guard import closing, guarded, their_items, theirs
from midturn.autogen.calls.request_keys import given, tool_key
from midturn.autogen.calls.stand_ins import streamed
from midturn.autogen.messages import conversion, lossless, texts
from midturn.autogen.parts.children import join
from midturn.autogen.state.save_state import LLM_MESSAGE
from midturn.errors import StateInvalid
from midturn.framework import Answer, Request
from midturn.record.codec import is_array
from midturn.record.digests import digest
from midturn.record.odd import packed
from midturn.record.packing import as_json
from midturn.tools import Declaration

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from autogen_core.code_executor import CodeBlock, CodeExecutor
    from autogen_core.memory import Memory
    from autogen_core.tools import Workbench

    from midturn.autogen.calls.interception import InterceptedRun
    from midturn.autogen.calls.request_keys import Digests
    from midturn.autogen.state.kept import Kept
    from midturn.record.codec import Json

T = TypeVar("T")


def _hold_back(_: Any) -> None:
    """Pass nothing on while a call runs. A secret may be in two pieces, so all of it comes with the redacted answer."""


UNSAFE = Declaration()
STATES = "states"
"""The key, in a recorded answer, of the states of objects that the call changed."""
CODE = "execute_code_blocks"
"""The name of code execution in a blueprint's effects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecorder:
    """Records the calls through one attribute of an agent, a manager or another part."""

    run: InterceptedRun
    path: str
    agent: str
    who: str

    async def make(self, request: Request, make: Callable[[Any], Awaitable[Answer]], works_with: Any = None) -> Answer:
        """Make a call through the journal. A recorded call restores the state of the objects that it ``works_with``."""
        kept = self.run.kept_by(works_with)

        async def observed(arguments: Any) -> Answer:
            before = await self._saved(kept)
            answer = await make(arguments)
            after = await self._saved(kept)
            return answer if after == before else replace(answer, value={**answer.value, STATES: after})

        work = observed if kept else make
        answer = await self.run.calls.call(request, lambda arguments: theirs(work(arguments)))
        if answer.native is None and STATES in answer.value:
            await self._restore(kept, answer.value[STATES])
        if answer.spent is not None:
            self.run.pass_time(answer.spent)
        return answer

    def read(self, load: Callable[[Any], T], value: Any, name: str) -> T:
        """Return a recorded answer as the object that AutoGen gets.

        Raises:
            StateInvalid: the answer is damaged, or another AutoGen recorded it.
        """
        try:
            return load(value)
        except Exception as error:
            raise StateInvalid(
                f"the recorded answer of {name} cannot be read ({type(error).__name__})",
                path=self.path,
                hint="Use the AutoGen that recorded it, or discard() the turn.",
            ) from error

    async def _saved(self, kept: Sequence[Kept]) -> dict[str, Json]:
        """Save the state of objects as JSON, by path."""
        try:
            return {keep.path: as_json(await keep.save()) for keep in kept}
        except Exception as error:  # noqa: BLE001 - it may be a user's own, and an agent would wait for ever
            await self.run.calls.fail(error)

    async def _restore(self, kept: Sequence[Kept], states: dict[str, Json]) -> None:
        """Load the states that objects had after a recorded call."""
        try:
            for keep in kept:
                if keep.path in states:
                    await keep.load(await keep.read(states[keep.path], keep.path))
        except Exception as error:  # noqa: BLE001 - the same
            await self.run.calls.fail(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRecorder(CallRecorder):
    """Records calls of a model."""

    digests: Digests

    @guarded
    async def create(
        self, messages: Sequence[Any], options: dict[str, Any], real: Callable[[], Awaitable[CreateResult]]
    ) -> CreateResult:
        async def make(_: Any) -> Answer:
            return await self._answer(await real(), [])

        answer = await self.make(self._request(messages, options, stream=False), make)
        return answer.native if isinstance(answer.native, CreateResult) else self._read(answer.value)[0]

    @guarded
    async def stream(
        self, messages: Sequence[Any], options: dict[str, Any], real: Callable[[], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        request = self._request(messages, options, stream=True)

        def call(tell: Callable[[Any], None]) -> Awaitable[Answer]:
            hear = tell if self.run.redaction is None else _hold_back

            async def make(_: Any) -> Answer:
                result: CreateResult | None = None
                chunks: list[str] = []
                async with closing(real()) as items:
                    async for item in items:
                        if isinstance(item, CreateResult):
                            result = item
                        else:
                            chunks.append(item)
                            hear(item)
                if result is None:
                    raise RuntimeError("the model's stream ended without a result")
                return await self._answer(result, chunks)

            return self.make(request, make)

        async with aclosing(streamed(call)) as items:
            async for item in items:
                if not isinstance(item, Answer):
                    yield item
                elif item.native is not None and self.run.redaction is None:
                    yield item.native
                else:
                    result, chunks = self._read(item.value)
                    for chunk in chunks:
                        yield chunk
                    yield result

    def _request(self, messages: Sequence[Any], options: dict[str, Any], *, stream: bool) -> Request:
        asked = {name: value for name, value in options.items() if name != "cancellation_token"}
        key = self.digests.of(messages, asked, stream=stream)
        return Request(
            path=self.path,
            agent=self.agent,
            who=self.who,
            what="model",
            key=key,
            texts=texts.of_model,
            redacted=self._redacted,
        )

    async def _redacted(self, answer: Answer) -> Answer:
        """Return an answer whose texts were replaced, with the calls that it starts now."""
        content = self._read(answer.value)[0].content
        return replace(answer, starts=[] if isinstance(content, str) else await self.run.starts(self.agent, content))

    def _read(self, value: dict[str, Any]) -> tuple[CreateResult, list[str]]:
        return self.read(_result, value, "the model")

    async def _answer(self, result: CreateResult, chunks: list[str]) -> Answer:
        value = result.model_dump()
        if chunks:
            whole = isinstance(result.content, str) and "".join(chunks) == result.content
            value["chunks"] = [len(chunk) for chunk in chunks] if whole else chunks
        starts = [] if isinstance(result.content, str) else await self.run.starts(self.agent, result.content)
        usage = (result.usage.prompt_tokens, result.usage.completion_tokens)
        return Answer(value=value, native=result, starts=starts, usage=usage)


def _result(value: dict[str, Any]) -> tuple[CreateResult, list[str]]:
    """Return a recorded answer, and the chunks in which it was streamed."""
    result = CreateResult.model_validate({name: item for name, item in value.items() if name != "chunks"})
    found: list[str] = []
    for piece in value.get("chunks", ()):
        if isinstance(piece, str):
            found.append(piece)
        else:
            start = sum(map(len, found))
            found.append(str(result.content)[start : start + piece])
    return result, found


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRecorder(CallRecorder):
    """Records calls of the tools in a workbench."""

    workbench: Workbench

    @guarded
    async def list_tools(self, real: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        await self.run.calls.enter()  # AutoGen lists the tools for every call, and makes all their schemas anew
        if isinstance(self.workbench, StaticWorkbench):  # its tools never change
            return await theirs(real())
        tools = await self.run.calls.look(self.path, lambda: theirs(real()))
        self.run.schemas.update({(self.path, tool["name"]): tool.get("parameters") for tool in tools})
        self.run.listed.update((self.agent, tool["name"]) for tool in tools)
        return tools

    @guarded
    async def call(self, name: str, arguments: Any, real: Callable[[Any], Awaitable[ToolResult]]) -> ToolResult:
        if private.runs_a_task(self.workbench, name):
            arguments, denied = await self._approved(name, arguments)
            return await theirs(real(arguments)) if denied is None else _text(name, denied, failed=True)

        async def make(changed: Any) -> Answer:
            return _answer(await real(changed), [], name)

        return self._tool_result(name, await self.make(self._request(name, arguments), make, self._tool(name)))

    @guarded
    async def stream(
        self, name: str, arguments: Any, real: Callable[[Any], AsyncGenerator[Any, None]]
    ) -> AsyncGenerator[Any, None]:
        if private.runs_a_task(self.workbench, name):
            arguments, denied = await self._approved(name, arguments)
            if denied is not None:
                yield _text(name, denied, failed=True)
                return
            async with aclosing(their_items(real(arguments))) as items:
                async for item in items:
                    yield item
            return
        request = self._request(name, arguments)

        def call(tell: Callable[[Any], None]) -> Awaitable[Answer]:
            hear = tell if self.run.redaction is None else _hold_back
            return self.make(request, lambda changed: _heard(real(changed), hear), self._tool(name))

        async with aclosing(streamed(call)) as items:
            async for item in items:
                if not isinstance(item, Answer):
                    yield item
                    continue
                for event in self._events(item) if item.native is None or self.run.redaction is not None else ():
                    yield event
                yield self._tool_result(name, item)

    async def _approved(self, name: str, arguments: Any) -> tuple[Any, str | None]:
        """Ask for approval of a tool that only runs agents; return its arguments, and the reason if it was denied.

        The calls of those agents are recorded, so the call of the tool itself is not.
        """
        if not self.run.declared(self.workbench, name).approval:
            return arguments, None
        return await self.run.calls.approve(self._request(name, arguments))

    def _request(self, name: str, arguments: Any) -> Request:
        declared = self.run.declared(self.workbench, name)
        return Request(
            path=join(self.agent, "tools"),  # the same for all workbenches of the agent
            agent=self.agent,
            who=self.who,
            what="tool",
            key=tool_key(self.agent, name, arguments),
            name=name,
            arguments=given(arguments),
            schema=self._schema(name) if declared.approval else None,
            effect=declared.effect,
            approval=declared.approval,
            reconcile=declared.reconcile,
            result_of_text=lambda text, failed: {"result": _text(name, text, failed=failed).model_dump()},
            texts=texts.of_tool,
        )

    def _schema(self, name: str) -> Any:
        """Return the schema of a tool's arguments, if it is known."""
        known = private.find_tool(self.workbench, name)
        return self.run.schemas.get((self.path, name)) if known is None else known.schema.get("parameters")

    def _events(self, answer: Answer) -> list[Any]:
        """Return the events that a tool sent during a recorded call."""
        told: list[Any] = []
        for event in events if is_array(events := answer.value.get("events")) else ():
            with suppress(StateInvalid):  # an event of a user's own type may not be readable
                told += conversion.load(self.run.live, [event], "events")
        return told

    def _tool_result(self, name: str, answer: Answer) -> ToolResult:
        if isinstance(answer.native, ToolResult):
            return answer.native
        return self.read(lambda value: ToolResult.model_validate(value["result"]), answer.value, name)

    def _tool(self, name: str) -> Any:
        return private.find_tool(self.workbench, name) or self.workbench


async def _heard(items: AsyncGenerator[Any, None], tell: Callable[[Any], None]) -> Answer:
    """Pass on the items that a tool sends while it works, and return its answer."""
    result: ToolResult | None = None
    events: list[Any] = []
    async with aclosing(items):
        async for item in items:
            if isinstance(item, ToolResult):
                result = item
            else:
                tell(item)
                if isinstance(item, BaseAgentEvent | BaseChatMessage):
                    events.append(item)
    if result is None:
        raise RuntimeError("a tool ended without a result")
    return _answer(result, events, result.name)


def _answer(result: Any, events: list[Any], name: str) -> Answer:
    """Return a tool's answer. The answer of a user's own workbench need only look like a ``ToolResult``."""
    if not isinstance(result, ToolResult):
        result = _text(name, str(result.to_text()), failed=bool(result.is_error))
    value: dict[str, Any] = {"result": result.model_dump(mode="json")}
    if events:
        value["events"] = [conversion.dump(event) for event in events]
    return Answer(value=value, native=result, failed=result.is_error)


def _text(name: str, text: str, *, failed: bool) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRecorder(CallRecorder):
    """Records executions of code."""

    executor: CodeExecutor

    @guarded
    async def execute(
        self, blocks: Sequence[CodeBlock], real: Callable[[list[CodeBlock]], Awaitable[CodeResult]]
    ) -> CodeResult:
        async def make(changed: Any) -> Answer:
            codes = zip(blocks, changed["code"], strict=True)
            result = await real([replace(block, code=code) for block, code in codes])
            return Answer(value={"exit_code": result.exit_code, "output": result.output}, native=result)

        code = [[block.language, block.code] for block in blocks]
        declared = self.run.effects.get(CODE, UNSAFE)
        request = Request(
            path=self.path,
            agent=self.agent,
            who=self.who,
            what="code",
            key=digest(self.agent, CODE, code),
            name=CODE,
            arguments={"code": [block.code for block in blocks]},
            schema=_code_schema(len(blocks)),
            effect=declared.effect,
            approval=declared.approval,
            reconcile=declared.reconcile,
            result_of_text=lambda text, failed: {"exit_code": int(failed), "output": text},
            texts=texts.of_tool,
        )
        answer = await self.make(request, make, self.executor)
        if isinstance(answer.native, CodeResult):
            return answer.native
        return self.read(_code_result, answer.value, CODE)


def _code_schema(blocks: int) -> dict[str, Any]:
    code = {"type": "array", "items": {"type": "string"}, "minItems": blocks, "maxItems": blocks}
    return {"type": "object", "properties": {"code": code}}


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanRecorder(CallRecorder):
    """Records questions to a human."""

    @guarded
    async def ask(self, question: str) -> str:
        """Ask the person who calls ``answer()``."""
        return await self.run.calls.ask(self._request(question), question)

    @guarded
    async def hear(
        self, question: str, real: Callable[[], Awaitable[Any]], load: Callable[[Any], Any], function: Any
    ) -> Any:
        """Ask with a function of the user."""

        async def make(_: Any) -> Answer:
            said = await real()
            text = said if isinstance(said, str) else said.model_dump_json()
            return Answer(value={"decision": "said", "text": text}, native=said)

        answer = await self.make(self._request(question), make, function)
        if answer.native is not None:
            return answer.native
        return self.read(lambda value: load(value["text"]), answer.value, "a person")

    def _request(self, question: str) -> Request:
        return Request(
            path=self.path,
            agent=self.agent,
            who=self.who,
            what="human",
            key=digest(question),
            texts=texts.of_tool,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecorder(CallRecorder):
    """Records queries and changes of a memory."""

    memory: Memory

    @guarded
    async def update_context(self, context: Any, real: Callable[[], Awaitable[Any]]) -> UpdateContextResult:
        before: list[Any] = []

        async def redacted(answer: Answer) -> Answer:
            """Take what the memory has added out of the context again: the redacted messages come in its place."""
            if "anew" not in answer.value:
                await context.clear()
                for message in before:
                    await context.add_message(message)
            return answer

        async def make(_: Any) -> Answer:
            before[:] = await _messages(context)
            result = await real()
            after = await _messages(context)
            grown = after[: len(before)] == before
            added = [message.model_dump() for message in after[len(before) if grown else 0 :]]
            found = MemoryQueryResult(results=[]) if result is None else result.memories  # AutoGen takes None, too
            value = {"added": added, **_memories(found), **({} if grown else {"anew": True})}
            return Answer(value=value, native=result or UpdateContextResult(memories=found))

        request = replace(self._request("update_context", None), redacted=redacted)
        answer = await self.make(request, make, self.memory)
        if answer.native is not None:
            found: UpdateContextResult = answer.native
            return found
        added, memories = self.read(
            lambda value: ([LLM_MESSAGE.validate_python(message) for message in value["added"]], _found(value)),
            answer.value,
            "the memory",
        )
        if "anew" in answer.value:
            await context.clear()
        for message in added:
            await context.add_message(message)
        return UpdateContextResult(memories=memories)

    @guarded
    async def query(self, query: Any, real: Callable[[], Awaitable[Any]]) -> MemoryQueryResult:
        async def make(_: Any) -> Answer:
            result = await real()
            return Answer(value=_memories(result), native=result)

        answer = await self.make(self._request("query", query), make, self.memory)
        if answer.native is not None:
            found: MemoryQueryResult = answer.native
            return found
        return self.read(_found, answer.value, "the memory")

    @guarded
    async def change(self, name: str, content: Any, real: Callable[[], Awaitable[None]]) -> None:
        async def make(_: Any) -> Answer:
            await real()
            return Answer(value={"changed": True}, native=True)

        request = self._request(name, content, result_of_text=lambda _, failed: {"changed": not failed})
        await self.make(request, make, self.memory)

    def _request(
        self, name: str, asked: Any, result_of_text: Callable[[str, bool], dict[str, Any]] | None = None
    ) -> Request:
        shown = packed(lossless.encode(lossless.frozen(asked)) if isinstance(asked, MemoryContent) else asked)
        return Request(
            path=self.path,
            agent=self.agent,
            who=self.who,
            what="memory",
            key=digest(name, shown),
            name=name,
            arguments={"content": shown},
            effect="unsafe" if result_of_text else "read",
            result_of_text=result_of_text,
            texts=texts.of_tool,
        )


async def _messages(context: Any) -> list[Any]:
    """Return all messages of a context, also those that the model does not get."""
    found = getattr(context, private.CONTEXT_MESSAGES, None)
    return list(found) if is_array(found) else list(await context.get_messages())


def _found(value: dict[str, Any]) -> MemoryQueryResult:
    found = [lossless.decode(item, f"results[{i}]") for i, item in enumerate(value["results"])]
    return MemoryQueryResult.model_construct(results=found)


def _memories(result: MemoryQueryResult) -> dict[str, Any]:
    return {"results": [lossless.encode(lossless.frozen(item)) for item in result.results]}


def _code_result(value: dict[str, Any]) -> CodeResult:
    exit_code, output = value["exit_code"], value["output"]
    if type(exit_code) is not int or type(output) is not str:
        raise TypeError("not an exit code and a text")
    return CodeResult(exit_code=exit_code, output=output)
