"""Make stand-ins for the clients, workbenches, memories and executors that an agent calls.

A stand-in passes its calls to the journal. Otherwise, it behaves like the real object: its class is a subclass of the
real class, and both objects share their attributes. Each agent has its own stand-in, so that two agents that share a
client still call it under their own paths.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import ListMemory, Memory
from autogen_core.models import ChatCompletionClient, CreateResult
from autogen_core.tools import ToolResult, Workbench

from midturn.record.codec import class_of, is_array, is_object
from midturn.stopping import settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from midturn.autogen.calls.recorders import ClientRecorder, CodeRecorder, MemoryRecorder, ToolRecorder
    from midturn.framework import Answer


MARK = "is_a_stand_in_of_midturn"
NESTED = (list, tuple, dict)


class _Hook:
    """A method of a stand-in. It takes precedence over a method in the attributes of the real object."""

    def __init__(self, name: str, method: Callable[..., Any]) -> None:
        self._name, self._method = name, method

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        if instance is None:
            return self
        own: dict[str, Any] = instance.__dict__
        inherited = cast("Any", super(owner, instance))
        return partial(self._method, instance.recorder, own.get(self._name) or getattr(inherited, self._name))

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value


async def _create(recorder: ClientRecorder, real: Any, messages: Any, **options: Any) -> CreateResult:
    return await recorder.create(messages, options, lambda: real(messages, **options))


def _create_stream(recorder: ClientRecorder, real: Any, messages: Any, **options: Any) -> AsyncGenerator[Any, None]:
    return recorder.stream(messages, options, lambda: real(messages, **options))


async def _list_tools(recorder: ToolRecorder, real: Any) -> list[Any]:
    return await recorder.list_tools(real)


async def _call_tool(
    recorder: ToolRecorder, real: Any, name: str, arguments: Any = None, *rest: Any, **options: Any
) -> ToolResult:
    return await recorder.call(name, arguments, lambda changed: real(name, changed, *rest, **options))


def _call_tool_stream(
    recorder: ToolRecorder, real: Any, name: str, arguments: Any = None, *rest: Any, **options: Any
) -> AsyncGenerator[Any, None]:
    return recorder.stream(name, arguments, lambda changed: real(name, changed, *rest, **options))


async def _update_context(recorder: MemoryRecorder, real: Any, model_context: Any) -> Any:
    return await recorder.update_context(model_context, lambda: real(model_context))


async def _query(recorder: MemoryRecorder, real: Any, query: Any = "", *args: Any, **options: Any) -> Any:
    return await recorder.query(query, lambda: real(query, *args, **options))


async def _add(recorder: MemoryRecorder, real: Any, content: Any, *args: Any, **options: Any) -> None:
    await recorder.change("add", content, lambda: real(content, *args, **options))


async def _clear(recorder: MemoryRecorder, real: Any) -> None:
    await recorder.change("clear", None, real)


async def _execute_code_blocks(recorder: CodeRecorder, real: Any, code_blocks: Any, cancellation_token: Any) -> Any:
    return await recorder.execute(code_blocks, lambda changed: real(changed, cancellation_token))


HOOKS: dict[type[Any], dict[str, Callable[..., Any]]] = {
    ChatCompletionClient: {"create": _create, "create_stream": _create_stream},
    CodeExecutor: {"execute_code_blocks": _execute_code_blocks},
    Memory: {"add": _add, "clear": _clear, "query": _query, "update_context": _update_context},
    Workbench: {"call_tool": _call_tool, "call_tool_stream": _call_tool_stream, "list_tools": _list_tools},
}
"""The methods of each kind of object, and the functions that a stand-in calls instead."""


def stand_in(real: Any, kind: type[Any], recorder: Any, earlier: Any) -> Any:
    """Return a stand-in for a client, a workbench, a memory or an executor.

    For the same object, reuse the stand-in of an ``earlier`` run: a helper of the agent may still hold it.
    """
    real = unwrapped(real)
    cls: Any = class_of(real)
    is_known = earlier is not None and earlier.real is real
    made: Any = earlier if is_known else object.__new__(_class(cls, cast("Any", kind)))
    made.__dict__ = vars(real)
    made.recorder, made.real = recorder, real
    return made


@lru_cache(maxsize=1024)
def is_stand_in(cls: Any) -> bool:
    """Return whether a class is a class of stand-ins."""
    return MARK in vars(cls)


def unwrapped(value: Any) -> Any:
    """Return the real object of a stand-in, also inside lists and dicts; any other value as it is."""
    if is_stand_in(class_of(value)):
        return value.real
    if type(value) in (list, tuple):
        return type(value)(unwrapped(item) for item in value)
    if class_of(value) is dict:
        return {key: unwrapped(item) for key, item in value.items()}
    return value


def put_back(owner: Any, attribute: str, real: Any, changed: Any) -> None:
    """Put the real object back into an attribute, with the changes that its owner made meanwhile."""
    attributes: dict[str, Any] = owner.__dict__
    found = attributes.get(attribute, changed)
    if found is not changed:
        setattr(owner, attribute, unwrapped(found))
        return
    if is_array(real):
        real[:] = unwrapped(changed)
    elif is_object(real):
        now = unwrapped(changed)
        real.clear()
        real.update(now)
    setattr(owner, attribute, real if is_array(real) or is_object(real) else unwrapped(real))


@lru_cache(maxsize=1024)
def kind_of(cls: Any) -> type[Any] | None:
    """Return the kind of a class whose objects' calls are recorded; ``None`` for any other class.

    Calls of a list memory are not recorded: its contents are in the state, so it gives the same answers again.
    """
    return None if cls is ListMemory else next((kind for kind in HOOKS if issubclass(cls, kind)), None)


@lru_cache(maxsize=1024)
def may_be_called(cls: Any) -> bool:
    """Return whether objects of a class are called, or may contain such objects."""
    return cls in NESTED or kind_of(cls) is not None


@lru_cache(maxsize=256)
def _class(cls: Any, kind: Any) -> type[Any]:
    hooks = {name: _Hook(name, hook) for name, hook in HOOKS[kind].items() if hasattr(cls, name)}
    names = {
        MARK: True,
        "__slots__": ("recorder", "real"),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    # A stand-in does not own what it shares, so its destructor must close nothing.
    return type(cls.__name__, (cls,), {**names, **hooks, "__del__": _let_go})


def _let_go(_stand_in: object) -> None:
    pass


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
