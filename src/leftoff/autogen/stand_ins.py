"""Stand-ins for what an agent calls: the same object to everybody, but for the calls, which the journal makes.

A stand-in has the class of what it stands for, as a subclass, and shares its attributes, so that it is one with it. It
differs for each agent: two that share a client still call it under their own paths.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import ListMemory, Memory
from autogen_core.models import ChatCompletionClient, CreateResult
from autogen_core.tools import StaticWorkbench, ToolResult, Workbench

from leftoff.autogen.kinds import class_of
from leftoff.stopping import settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from leftoff.autogen.sites import ClientSite, CodeSite, MemorySite, ToolSite
    from leftoff.framework import Answer

T = TypeVar("T")


class _Client:
    """A model client."""

    __slots__ = ()
    site: ClientSite

    async def create(self, messages: Any, **options: Any) -> CreateResult:
        real: Any = super()
        return await self.site.create(messages, options, lambda: real.create(messages, **options))

    async def create_stream(self, messages: Any, **options: Any) -> AsyncGenerator[Any, None]:
        real: Any = super()
        async with aclosing(
            self.site.stream(messages, options, lambda: real.create_stream(messages, **options))
        ) as items:
            async for item in items:
                yield item


class _Workbench:
    """A workbench."""

    __slots__ = ()
    site: ToolSite

    async def list_tools(self) -> list[Any]:
        real: Any = super()
        return await self.site.list_tools(real.list_tools)

    async def call_tool(
        self, name: str, arguments: Any = None, cancellation_token: Any = None, call_id: str | None = None
    ) -> ToolResult:
        real: Any = super()
        return await self.site.call(
            name, arguments, lambda changed: real.call_tool(name, changed, cancellation_token, call_id)
        )


class _StreamWorkbench(_Workbench):
    """A workbench whose tools tell what they do."""

    __slots__ = ()

    async def call_tool_stream(
        self, name: str, arguments: Any = None, cancellation_token: Any = None, call_id: str | None = None
    ) -> AsyncGenerator[Any, None]:
        real: Any = super()
        async with aclosing(
            self.site.stream(
                name, arguments, lambda changed: real.call_tool_stream(name, changed, cancellation_token, call_id)
            )
        ) as items:
            async for item in items:
                yield item


class _Memory:
    """A memory."""

    __slots__ = ()
    site: MemorySite

    async def update_context(self, model_context: Any) -> Any:
        real: Any = super()
        return await self.site.update_context(model_context, lambda: real.update_context(model_context))

    async def query(self, query: Any = "", *args: Any, **options: Any) -> Any:
        real: Any = super()
        return await self.site.query(query, lambda: real.query(query, *args, **options))

    async def add(self, content: Any, *args: Any, **options: Any) -> None:
        real: Any = super()
        await self.site.change("add", content, lambda: real.add(content, *args, **options))

    async def clear(self) -> None:
        real: Any = super()
        await self.site.change("clear", None, real.clear)


class _Executor:
    """A code executor."""

    __slots__ = ()
    site: CodeSite

    async def execute_code_blocks(self, code_blocks: Any, cancellation_token: Any) -> Any:
        real: Any = super()
        return await self.site.execute(code_blocks, lambda: real.execute_code_blocks(code_blocks, cancellation_token))


def stand_in(real: T, site: Any) -> T:
    """Something to be called in place of a client, a workbench, a memory or an executor."""
    cls: Any = class_of(real)
    made: Any = object.__new__(_class(cls))
    made.__dict__ = vars(real)
    made.site = site
    return made  # type: ignore[no-any-return]


def kind_of(value: object) -> type[Any] | None:
    """What a value is called as, if calls to it are recorded.

    Not a list memory: what it holds is in the state, so it says the same when it is asked again.
    """
    if type(value) is ListMemory:
        return None
    for kind in (ChatCompletionClient, Workbench, Memory, CodeExecutor):
        if isinstance(value, kind):
            return kind
    return None


@lru_cache(maxsize=256)
def _class(cls: Any) -> type[Any]:
    mixin: type[Any]
    if issubclass(cls, ChatCompletionClient):
        mixin = _Client
    elif issubclass(cls, Workbench):
        mixin = _StreamWorkbench if hasattr(cls, "call_tool_stream") else _Workbench
    else:
        mixin = _Memory if issubclass(cls, Memory) else _Executor
    names = {"__slots__": ("site",), "__module__": cls.__module__, "__qualname__": cls.__qualname__}
    # It does not own what it shares, so it ends nothing when it goes.
    return type(cls.__name__, (mixin, cls), {**names, "__del__": _let_go})


def _let_go(_stand_in: object) -> None:
    pass


def has_fixed_tools(workbench: Workbench) -> bool:
    """Whether its list of tools never changes."""
    return isinstance(workbench, StaticWorkbench)


async def streamed(call: Callable[[Callable[[Any], None]], Awaitable[Answer]]) -> AsyncIterator[Any]:
    """What a call tells while it is made, and then its answer."""
    told: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.ensure_future(call(told.put_nowait))
    task.add_done_callback(lambda _: told.put_nowait(None))
    try:
        while (item := await told.get()) is not None:
            yield item
        yield await task
    finally:
        if not task.done():
            task.cancel()
            await settled(asyncio.wait({task}))
        if not task.cancelled():
            task.exception()  # whoever closed the stream does not want to know
