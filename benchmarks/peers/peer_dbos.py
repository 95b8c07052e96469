"""DBOS: a workflow for each turn. Every call of the model and of the tool is a step.

It stores calls and no conversation, so it is compared with our journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dbos import DBOS, DBOSConfig
from sqlalchemy import Engine, event

from benchmarks.contender import Unable
from benchmarks.peers.shared import SESSION, data_url, database, set_pragmas

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workload import Shape, Turn

_now: dict[str, Turn] = {}
"""The turns that the model and the tool know, by conversation. A workflow gets the task, not the answers."""


class Ways(NamedTuple):
    """The functions that make the calls of a turn."""

    model: Callable[[str, int], Any]
    tool: Callable[[str, dict[str, str]], Any]
    choose: Callable[[str], Any]


async def model(name: str, number: int) -> str:
    return _now[name].answers[number]


async def tool(name: str, arguments: dict[str, str]) -> str:
    del arguments
    call = _now[name].call
    assert call
    return call.result


async def choose(name: str) -> dict[str, str]:
    """Return the model's answer that calls the tool."""
    call = _now[name].call
    assert call
    return call.arguments


KEPT = Ways(DBOS.step()(model), DBOS.step()(tool), DBOS.step()(choose))
BARE = Ways(model, tool, choose)


async def answered(ways: Ways, name: str, agents: int, *, calls: bool) -> str:
    """Run a turn, with either kind of calls."""
    if calls:
        await ways.tool(name, await ways.choose(name))
    answers = [await ways.model(name, number) for number in range(agents)]
    return answers[-1]


@DBOS.workflow()
async def workflow(name: str, question: str, picture: str, agents: int, *, calls: bool) -> str:
    """Run a turn as a workflow. DBOS stores the task as its input and the answers as results of steps."""
    del question, picture
    return await answered(KEPT, name, agents, calls=calls)


class Dbos:
    def __init__(self, address: str, shape: Shape, *, store: str, name: str = SESSION) -> None:
        self._address, self._shape, self._store, self._name = address, shape, store, name
        self._url = address if store == "postgres" else f"sqlite:///{database(address)}"

    async def open(self) -> None:
        if self._store == "sqlite":
            event.listen(Engine, "connect", set_pragmas)  # its engine is made by launch() and used at once
        config: DBOSConfig = {
            "name": "benchmark",
            "system_database_url": self._url,
            "application_version": "1",
            "enable_otlp": False,
            "log_level": "ERROR",
        }
        DBOS(config=config)
        DBOS.launch()

    async def durable(self, turn: Turn) -> None:
        _now[self._name] = turn
        picture = data_url(turn.picture) if turn.picture else ""
        await workflow(self._name, turn.question, picture, len(turn.answers), calls=bool(turn.call))

    async def plain(self, turn: Turn) -> None:
        _now[self._name] = turn
        await answered(BARE, self._name, len(turn.answers), calls=bool(turn.call))

    async def restore(self) -> int:
        raise Unable("DBOS keeps workflows and their steps: there is no conversation to read")

    async def another(self, name: str) -> Dbos:
        return Dbos(self._address, self._shape, store=self._store, name=name)  # DBOS is launched once in a process

    async def close(self) -> None:
        DBOS.destroy()


make = Dbos
