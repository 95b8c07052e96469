"""DBOS: a workflow for each turn, in which every call of the model and of the tool is a step.

It keeps calls and has no conversation: it is compared with our journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbos import DBOS, DBOSConfig
from sqlalchemy import Engine, event

from benchmarks.peers.shared import data_url, database, set_pragmas

if TYPE_CHECKING:
    from benchmarks.workload import Shape, Turn

_now: list[Turn] = []
"""The turn that the model and the tool know: a workflow is given what was asked and nothing more."""


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


model_step = DBOS.step()(model)
tool_step = DBOS.step()(tool)
choose_step = DBOS.step()(choose)


@DBOS.workflow()
async def workflow(question: str, picture: str, agents: int, *, calls: bool) -> str:
    """What is asked is kept as its input, what is said as the results of its steps."""
    del question, picture
    if calls:
        await tool_step(await choose_step())
    answers = [await model_step(number) for number in range(agents)]
    return answers[-1]


async def bare(question: str, picture: str, agents: int, *, calls: bool) -> str:
    """The same by itself."""
    del question, picture
    if calls:
        await tool(await choose())
    answers = [await model(number) for number in range(agents)]
    return answers[-1]


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
        picture = data_url(turn.picture) if turn.picture else ""
        await bare(turn.question, picture, len(turn.answers), calls=bool(turn.call))

    async def restore(self) -> int:
        raise NotImplementedError("DBOS keeps workflows and their steps: there is no conversation to read")

    async def close(self) -> None:
        DBOS.destroy()


make = Dbos
