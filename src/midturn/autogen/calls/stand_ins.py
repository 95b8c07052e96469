"""Make stand-ins for the clients, workbenches, memories and executors that an agent calls.

A stand-in passes its calls to the journal. Otherwise, it is a proxy of the real object. Each agent has its own
stand-in, so that two agents that share a client still call it under their own paths.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import ListMemory, Memory
from autogen_core.models import ChatCompletionClient, CreateResult
from autogen_core.tools import ToolResult, Workbench

from midturn.autogen.parts import proxy
from midturn.autogen.parts.abilities import is_elusive, kind_by_class, may_call_tools
from midturn.record.codec import class_of
from midturn.stopping import settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from midturn.autogen.calls.recorders import ClientRecorder, CodeRecorder, MemoryRecorder, ToolRecorder
    from midturn.framework import Answer


NESTED = (list, tuple, dict)


async def _create(recorder: ClientRecorder, real: Any, *args: Any, **options: Any) -> CreateResult:
    messages, rest = _request(args, options)
    return await recorder.create(messages, rest, lambda: real(*args, **options))


def _create_stream(recorder: ClientRecorder, real: Any, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
    messages, rest = _request(args, options)
    return recorder.stream(messages, rest, lambda: real(*args, **options))


def _request(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the messages of a request, and its options by name; AutoGen itself passes no options by position."""
    if len(args) == 1:
        return args[0], options
    given = {**options, **{str(number): value for number, value in enumerate(args[1:])}}
    return (args[0] if args else given.pop("messages", ())), given


async def _list_tools(recorder: ToolRecorder, real: Any) -> list[Any]:
    return await recorder.list_tools(real)


async def _call_tool(recorder: ToolRecorder, real: Any, *args: Any, **options: Any) -> ToolResult:
    name, arguments = _given(args, options, 0, "name"), _given(args, options, 1, "arguments")
    return await recorder.call(name, arguments, _changing(real, args, options, 1, "arguments"))


def _call_tool_stream(recorder: ToolRecorder, real: Any, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
    name, arguments = _given(args, options, 0, "name"), _given(args, options, 1, "arguments")
    return recorder.stream(name, arguments, _changing(real, args, options, 1, "arguments"))


async def _update_context(recorder: MemoryRecorder, real: Any, *args: Any, **options: Any) -> Any:
    return await recorder.update_context(_given(args, options, 0, "model_context"), lambda: real(*args, **options))


async def _query(recorder: MemoryRecorder, real: Any, *args: Any, **options: Any) -> Any:
    query = _given(args, options, 0, "query")
    return await recorder.query("" if query is None else query, lambda: real(*args, **options))


async def _add(recorder: MemoryRecorder, real: Any, *args: Any, **options: Any) -> None:
    await recorder.change("add", _given(args, options, 0, "content"), lambda: real(*args, **options))


async def _clear(recorder: MemoryRecorder, real: Any) -> None:
    await recorder.change("clear", None, real)


async def _execute_code_blocks(recorder: CodeRecorder, real: Any, *args: Any, **options: Any) -> Any:
    blocks = _given(args, options, 0, "code_blocks")
    return await recorder.execute(blocks, _changing(real, args, options, 0, "code_blocks"))


def _given(args: tuple[Any, ...], options: dict[str, Any], place: int, name: str) -> Any:
    """Return an argument that may be passed by position or by name."""
    return args[place] if place < len(args) else options.get(name)


def _changing(real: Any, args: tuple[Any, ...], options: dict[str, Any], place: int, name: str) -> Callable[[Any], Any]:
    """Return a function that calls the real method, with another value of one argument and all else as passed."""
    if place < len(args):
        return lambda value: real(*args[:place], value, *args[place + 1 :], **options)
    return lambda value: real(*args, **{**options, name: value})


HOOKS: dict[type[Any], dict[str, Callable[..., Any]]] = {
    ChatCompletionClient: {"create": _create, "create_stream": _create_stream},
    CodeExecutor: {"execute_code_blocks": _execute_code_blocks},
    Memory: {"add": _add, "clear": _clear, "query": _query, "update_context": _update_context},
    Workbench: {"call_tool": _call_tool, "call_tool_stream": _call_tool_stream, "list_tools": _list_tools},
}
"""The methods of each kind of object, and the functions that a stand-in calls instead."""


def stand_in(real: Any, kind: Any, recorder: Any, earlier: Any) -> Any:
    """Return a stand-in for a client, a workbench, a memory or an executor.

    For the same object, reuse the stand-in of an ``earlier`` run: a helper of the agent may still hold it.
    """
    if class_of(class_of(real)) is proxy.ProxyType:
        real = proxy.real_of(real)
    if earlier is None or proxy.real_of(earlier) is not real:
        return proxy.make(_class(class_of(real), kind), real, recorder)
    proxy.set_aside(earlier, recorder)
    return earlier


def without_stand_ins(value: Any) -> Any:
    """Return the real object of a stand-in, also inside lists and dicts; any other value as it is."""
    if class_of(class_of(value)) is proxy.ProxyType:
        return proxy.real_of(value)
    if type(value) in (list, tuple):
        return type(value)(without_stand_ins(item) for item in value)
    if class_of(value) is dict:
        return {key: without_stand_ins(item) for key, item in value.items()}
    return value


def put_back(owner: Any, attribute: str, real: Any, changed: Any) -> None:
    """Put the real object back into an attribute, with the changes that its owner made meanwhile."""
    attributes: dict[str, Any] = owner.__dict__
    found = attributes.get(attribute, changed)
    if found is not changed:
        attributes[attribute] = without_stand_ins(found)
        return
    kind = class_of(real)
    if kind is list:
        real[:] = without_stand_ins(changed)
    elif kind is dict:
        now = without_stand_ins(changed)
        real.clear()
        real.update(now)
    else:
        real = without_stand_ins(real)
    attributes[attribute] = real


@lru_cache(maxsize=1024)
def is_recorded(cls: Any) -> bool:
    """Return whether calls of the objects of a class are recorded.

    Those of a list memory are not: its contents are in the state, so it gives the same answers again.
    """
    return cls is not ListMemory


@lru_cache(maxsize=1024)
def may_be_called(cls: Any) -> bool:
    """Return whether objects of a class may be called, or contain such objects."""
    known = kind_by_class(cls) is not None and is_recorded(cls)
    return cls in NESTED or known or is_elusive(cls) or may_call_tools(cls)


@lru_cache(maxsize=256)
def _class(cls: Any, kind: Any) -> proxy.ProxyType:
    return proxy.proxy_class(cls, HOOKS[kind])


async def streamed(call: Callable[[Callable[[Any], None]], Awaitable[Answer]]) -> AsyncGenerator[Any, None]:
    """Yield the items that a call sends while it runs, and then its answer."""
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
            task.exception()  # nobody reads it after the stream was closed
