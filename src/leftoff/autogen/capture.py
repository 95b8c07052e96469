"""The state of an AutoGen agent or team, at a cost that grows with what is new."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import BaseGroupChat
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)

from leftoff.autogen import private
from leftoff.codec import MAX_DEPTH, is_object
from leftoff.errors import StateInvalid
from leftoff.state import Grown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

KNOWN_CONTEXTS = (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
"""Contexts that never change a message they hold. A subclass may, so it is dumped whole."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A list that grows: the object and attribute that hold it, and where ``save_state()`` puts its dump."""

    holder: Any
    attribute: str
    path: Sequence[str]
    dump: Callable[[Any], Any]


async def capture(live: Any) -> dict[str, Any]:
    """What ``save_state()`` returns, under "state", with the lists that grow left for the caller to dump."""
    places = await _places(live, ())
    if places is None:
        return {"state": _copy(await live.save_state())}
    places = [place for place in places if getattr(place.holder, place.attribute)]
    with _emptied(places) as lists:
        state = _copy(await live.save_state())
    for place, items in zip(places, lists, strict=True):
        parent = state
        for name in place.path[:-1]:
            parent = parent.get(name) if is_object(parent) else None
        if not is_object(parent) or parent.get(place.path[-1]) != []:
            return {"state": _copy(await live.save_state())}  # its save_state is not the one we know
        parent[place.path[-1]] = Grown(items, place.dump)
    return {"state": state}


async def _places(live: Any, path: tuple[str, ...]) -> list[_Place] | None:
    """The lists that grow in an agent or a team; ``None`` if a ``save_state()`` in it is not AutoGen's.

    One of a user's own may look at what would be emptied, its own or another agent's.
    """
    if not _saves_as_autogen(live):
        return None
    if isinstance(live, AssistantAgent):
        context = private.model_context(live)
        if type(context) in KNOWN_CONTEXTS:
            return [_Place(context, private.CONTEXT_MESSAGES, (*path, "llm_context", "messages"), _dump_model)]
    if not isinstance(live, BaseGroupChat):
        return []
    found: list[_Place] = []
    for name, container in (await private.containers(live)).items():
        at = (*path, "agent_states", name)
        if not _saves_as_autogen(container):
            return None
        if name == private.manager_name(live):
            found.append(_Place(container, private.MANAGER_THREAD, (*at, "message_thread"), _dump_message))
        else:
            found.append(_Place(container, private.CONTAINER_BUFFER, (*at, "message_buffer"), _dump_message))
    for participant in private.participants(live):
        inner = await _places(participant, (*path, "agent_states", participant.name, "agent_state"))
        if inner is None:
            return None
        found += inner
    return found


def _saves_as_autogen(live: Any) -> bool:
    saving: Any = cast("Any", type(live)).save_state
    return str(saving.__module__).startswith("autogen_")


@contextmanager
def _emptied(places: Sequence[_Place]) -> Generator[list[Sequence[Any]]]:
    """Put empty lists in place of the real ones, so that ``save_state()`` dumps all but them."""
    lists = [getattr(place.holder, place.attribute) for place in places]
    try:
        for place in places:
            setattr(place.holder, place.attribute, [])
        yield lists
    finally:
        for place, items in zip(places, lists, strict=True):
            setattr(place.holder, place.attribute, items)


def _copy(state: Any, path: str = "$.state", depth: int = 1) -> Any:
    """The state in plain dicts and lists of its own: some components hand out their live ones, or Counters."""
    if depth > MAX_DEPTH:
        raise StateInvalid(f"nested deeper than {MAX_DEPTH} levels", path=path)
    if _is_mapping(state):
        return {key: _copy(value, f"{path}.{key}", depth + 1) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [_copy(value, f"{path}[{i}]", depth + 1) for i, value in enumerate(cast("list[Any]", state))]
    return state


def _is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)


def _dump_model(message: Any) -> Any:
    return message.model_dump()


def _dump_message(message: Any) -> Any:
    return message.dump()
