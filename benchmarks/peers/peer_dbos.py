"""DBOS: a workflow for each turn, in which every call of the model and of the tool is a step.

It keeps calls and has no conversation: it is compared with our journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dbos import DBOS, DBOSConfig
from sqlalchemy import Engine, event

from benchmarks.contender import Unable
from benchmarks.peers.shared import data_url, database, set_pragmas

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.workload import Shape, Turn

_now: list[Turn] = []
"""The turn that the model and the tool know: a workflow is given what was asked and nothing more."""


class Ways(NamedTuple):
    """How the calls of a turn are made."""

    model: Callable[[int], Any]
    tool: Callable[[dict[str, str]], Any]
    choose: Callable[[], Any]


async def model(number: int) -> str:
    return _now[-1].answers[number]


async def tool(arguments: dict[str, str]) -> str:
    del arguments
    call = _now[-1].call
    assert call
    return call.result


async def choose() -> dict[str, str]:
    """The model's answer that calls the tool."""
    call = _now[-1].call
    assert call
    return call.arguments


KEPT = Ways(DBOS.step()(model), DBOS.step()(tool), DBOS.step()(choose))
BARE = Ways(model, tool, choose)


async def answered(ways: Ways, agents: int, *, calls: bool) -> str:
    """A turn, whichever way its calls are made."""
    if calls:
        await ways.tool(await ways.choose())
    answers = [await ways.model(number) for number in range(agents)]
    return answers[-1]


@DBOS.workflow()
async def workflow(question: str, picture: str, agents: int, *, calls: bool) -> str:
    """What is asked is kept as its input, what is said as the results of its steps."""
    del question, picture
    return await answered(KEPT, agents, calls=calls)


class Dbos:
    def __init__(self, place: str, shape: Shape, *, store: str) -> None:
        del shape
        self._url = place if store == "postgres" else f"sqlite:///{database(place)}"
        self._store = store

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
        _now[:] = [turn]
        picture = data_url(turn.picture) if turn.picture else ""
        await workflow(turn.question, picture, len(turn.answers), calls=bool(turn.call))

    async def plain(self, turn: Turn) -> None:
        _now[:] = [turn]
        await answered(BARE, len(turn.answers), calls=bool(turn.call))

    async def restore(self) -> int:
        raise Unable("DBOS keeps workflows and their steps: there is no conversation to read")

    async def close(self) -> None:
        DBOS.destroy()


make = Dbos
