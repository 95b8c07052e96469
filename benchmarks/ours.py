"""``python -m benchmarks.ours NAME run|restore|crowd``: midturn, and the tutorial's JSON file."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import midturn
from benchmarks.cast import Cast
from benchmarks.contender import main

if TYPE_CHECKING:
    from benchmarks.cast import Live
    from benchmarks.workload import Shape, Turn
    from midturn.turns.session_options import Durability

SESSION = "case-42"


class Midturn:
    """A session of midturn, as the README shows it, and the same agents without it."""

    def __init__(self, address: str, shape: Shape, scheme: str = "", durability: Durability = "call") -> None:
        self._url = (
            f"{scheme}{address}/{'support.db' if scheme.startswith('sqlite') else 'support'}" if scheme else address
        )
        self._shape: Shape = shape
        self._durability: Durability = durability
        self._cast = Cast(shape)
        self._open = AsyncExitStack()

    async def open(self) -> None:
        self._store = await self._open.enter_async_context(midturn.open(self._url))
        self._plain = self._cast.build()
        self._case = self._store.session(SESSION, self._cast.build, durability=self._durability)

    async def recall(self) -> None:
        """Load the history with AutoGen alone, so that the plain agents do not use midturn."""
        stored = self._cast.build()
        if await self._store.load(SESSION, stored):
            await self._plain.load_state(await stored.save_state())

    async def durable(self, turn: Turn) -> None:
        await self._case.run(self._cast.enter(turn))

    async def plain(self, turn: Turn) -> None:
        await self._plain.run(task=self._cast.enter(turn))

    async def restore(self) -> int:
        await self._store.load(SESSION, self._cast.build())
        return await self._cast.messages()

    async def another(self, name: str) -> Midturn:
        other = Midturn(self._url, self._shape, durability=self._durability)
        other._store = self._store
        other._case = self._store.session(name, other._cast.build, durability=self._durability)
        return other

    async def close(self) -> None:
        await self._open.aclose()


class Json:
    """Does what AutoGen's tutorial does: write the whole state to a file after each turn, without a flush."""

    def __init__(self, address: str, shape: Shape) -> None:
        self._path = Path(address) / "agent_state.json"
        self._cast = Cast(shape)

    async def open(self) -> None:
        self._agent: Live | None = None
        self._plain = self._cast.build()

    async def recall(self) -> None:
        await self._load(self._plain)

    async def durable(self, turn: Turn) -> None:
        if self._agent is None:
            self._agent = self._cast.build()
            await self._load(self._agent)
        await self._agent.run(task=self._cast.enter(turn))
        state = await self._agent.save_state()
        with self._path.open("w") as file:
            json.dump(state, file)

    async def plain(self, turn: Turn) -> None:
        await self._plain.run(task=self._cast.enter(turn))

    async def restore(self) -> int:
        await self._load(self._cast.build())
        return await self._cast.messages()

    async def close(self) -> None:
        pass

    async def _load(self, agent: Live) -> None:
        if self._path.exists():
            with self._path.open() as file:
                await agent.load_state(json.load(file))


CONTENDERS: dict[str, Any] = {
    "midturn-sqlite": partial(Midturn, scheme="sqlite:///"),
    "midturn-sqlite-turn": partial(Midturn, scheme="sqlite:///", durability="turn"),
    "midturn-file": partial(Midturn, scheme="file://"),
    "midturn-postgres": Midturn,
    "midturn-postgres-turn": partial(Midturn, durability="turn"),
    "midturn-redis": Midturn,
    "json": Json,
}

if __name__ == "__main__":
    main(CONTENDERS)
