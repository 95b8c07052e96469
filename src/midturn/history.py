"""Reading a session: its checkpoints, its turns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from midturn import state, turns
from midturn.bodies import Bodies
from midturn.codec import is_object
from midturn.errors import StateInvalid
from midturn.records import Kind
from midturn.state import Archive
from midturn.turns import CheckpointRow, FailureRow, TurnRow
from midturn.uncollected import uncollected

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from midturn.codec import Json
    from midturn.ledger import Ledger
    from midturn.records import Row
    from midturn.state import Append
    from midturn.turns import Origin

PAGE = 200
"""Turns read at once."""
MANY = 4000
"""Bodies read at once: until they are parsed, their rows take as much memory again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a session's history; messages are JSON, exactly as the framework dumped them."""

    number: int
    status: Literal["done", "running", "waiting", "failed", "cancelled"]
    origin: Origin
    task: Sequence[Json] | None
    messages: Sequence[Json] = ()
    key: str | None = None
    repairs: Sequence[str] = ()
    """What was broken in the state before the turn and was mended for it."""
    notes: Sequence[str] = ()
    """What was not as it had been when the turn was finished after an interruption."""
    decisions: Sequence[str] = ()
    """What people were asked about calls of tools, and what they decided."""
    drift: Sequence[str] = ()
    """What had changed in the agents since the turn before, which prompts and which tools, and what was migrated."""
    version: int = 1
    """Of the blueprint: the one that made the checkpoint, or that accepted the input."""
    error: str | None = None
    stop_reason: str | None = None
    usage: tuple[int, int] = (0, 0)
    started: float
    ended: float | None = None


class Checkpoint:
    """One checkpoint of a session, read when asked."""

    def __init__(self, ledger: Ledger, number: int) -> None:
        self._ledger = ledger
        self.number = number

    def __repr__(self) -> str:
        return f"Checkpoint({self._ledger.session!r}, {self.number})"

    async def state(self) -> Any:
        """The state exactly as the framework's own ``save_state()`` returned it."""
        return (await self.tree())["state"]

    async def beside(self) -> dict[str, Any]:
        """What the framework's own ``save_state()`` leaves out, by the path of the part that it belongs to."""
        beside: dict[str, Any] = (await self.tree()).get("beside", {})
        return beside

    async def tree(self) -> Any:
        """Both, and how many parts there are beside."""
        return (await self.read()).tree

    async def version(self) -> int:
        """The version of the blueprint that wrote it."""
        return (await self.read()).row.version

    async def fingerprint(self) -> Any:
        """How the agents were built whose state it is: prompts, tools, participants. ``None`` if it does not say so."""
        return (await self.read()).fingerprint

    async def read(self) -> Stored:
        """All of it."""
        await self._ledger.refresh()
        return await read_checkpoint(self._ledger, self.number)

    async def turn(self) -> Turn:
        """The turn that made it."""
        await self._ledger.refresh()
        async for turn in history(self._ledger, start=self.number, stop=self.number + 1):
            return turn
        raise _missing(self._ledger, self.number)


async def history(ledger: Ledger, *, start: int = 0, stop: int | None = None) -> AsyncGenerator[Turn, None]:
    """The turns with ``start <= number < stop``, oldest first."""
    store, session, progress = ledger.store, ledger.session, ledger.progress
    bodies = await read_bodies(ledger, progress.bodies)
    failures: dict[int, FailureRow] = {}
    for row in await store.rows(session, Kind.FAILURE, stop=progress.failures):
        failure = turns.decode(FailureRow, row.data, ledger.name(Kind.FAILURE, row.n))
        failures[failure.turn] = failure
    stop = progress.turn + 1 if stop is None else min(stop, progress.turn + 1)
    for page in range(start, stop, PAGE):
        limits = {"start": page, "stop": min(page + PAGE, stop)}
        done = {
            row.n: turns.decode(CheckpointRow, row.data, ledger.name(Kind.CHECKPOINT, row.n))
            for row in await store.rows(session, Kind.CHECKPOINT, **limits)
            if row.n <= progress.checkpoint  # a later one is not of the head that was read
        }
        for row in await store.rows(session, Kind.TURN, **limits):
            turn = turns.decode(TurnRow, row.data, ledger.name(Kind.TURN, row.n))
            going = row.n == progress.turn and progress.open in ("running", "waiting")
            found = _turn(row.n, turn, done.get(row.n), None if going else failures.get(row.n), bodies)
            yield replace(found, status="waiting") if going and progress.open == "waiting" else found


def _turn(number: int, turn: TurnRow, done: CheckpointRow | None, failure: FailureRow | None, bodies: Bodies) -> Turn:
    task = messages_of(bodies, turn.task)
    if done is not None:
        return Turn(
            number=number,
            status="done",
            origin=done.origin,
            task=task,
            messages=messages_of(bodies, done.messages) or (),
            key=turn.key,
            repairs=turn.repairs,
            notes=done.notes,
            decisions=done.decisions,
            drift=done.drift,
            version=done.version,
            stop_reason=done.stop_reason,
            usage=(done.usage[0], done.usage[1]),
            started=turn.at,
            ended=done.at,
        )
    return Turn(
        number=number,
        status=failure.status if failure else "running",
        origin="run",
        task=task,
        key=turn.key,
        repairs=turn.repairs,
        version=turn.version,
        error=failure.error if failure else None,
        started=turn.at,
        ended=failure.at if failure else None,
    )


def messages_of(bodies: Bodies, numbers: Sequence[int] | None) -> list[Json] | None:
    """The messages that these bodies are."""
    return None if numbers is None else [bodies.message(number, f"body {number}") for number in numbers]


async def read_bodies(ledger: Ledger, count: int) -> Bodies:
    """The first ``count`` bodies of a session.

    Raises:
        StateInvalid: some are missing.
    """
    bodies = Bodies()
    while (start := len(bodies.values)) < count:
        found = await ledger.store.rows(ledger.session, Kind.BODY, start=start, stop=min(start + MANY, count))
        if not found:
            raise StateInvalid(f"there are {start} of {count}", path="bodies", session=ledger.session)
        with uncollected():
            bodies.extend(found)
    return bodies


@dataclass(frozen=True, slots=True)
class Stored:
    """A checkpoint as it was read."""

    row: CheckpointRow
    tree: Any
    fingerprint: Json
    """How its agents were built; ``None`` if it does not say so."""


async def read_checkpoint(
    ledger: Ledger, number: int, archive: Archive | None = None, *, bodies: int | None = None
) -> Stored:
    """A checkpoint and its state; an empty ``archive`` gets to know the first ``bodies`` bodies and its lists."""
    rows = await ledger.store.rows(ledger.session, Kind.CHECKPOINT, stop=number + 1)
    if not rows or rows[-1].n != number:
        raise _missing(ledger, number)
    row = turns.decode(CheckpointRow, rows[-1].data, ledger.name(Kind.CHECKPOINT, number))
    found = await read_bodies(ledger, row.bodies if bodies is None else bodies)
    fingerprint = None
    try:
        logs = await _read_logs(ledger, rows)
        with uncollected():
            if archive is not None:
                archive.learn_bodies(found)
            if row.fingerprint is not None:
                fingerprint = found.message(row.fingerprint, "fingerprint")
            tree: Any = state.restore(
                skeleton=row.skeleton,
                spans=[(span[0], span[1]) for span in row.spans],
                bodies=found,
                logs=logs,
                archive=archive or Archive(),
            )
    except StateInvalid as error:
        error.session = ledger.session
        raise
    if not is_object(tree) or "state" not in tree:
        raise StateInvalid("is not the state of a session", path="$", session=ledger.session)
    return Stored(row, tree, fingerprint)


async def _read_logs(ledger: Ledger, checkpoints: Sequence[Row]) -> list[list[Append]]:
    """What all these checkpoints appended to logs, in their order."""
    with uncollected():
        logs = [turns.decode_appends(row) for row in checkpoints]
    if not all(logs):  # One appended nothing, or is so old that a row of its own says what.
        old = await ledger.store.rows(ledger.session, Kind.LOG, stop=checkpoints[-1].n + 1)
        with uncollected():
            logs[:0] = [turns.decode_appends(row) for row in old]
    return logs


def _missing(ledger: Ledger, number: int) -> StateInvalid:
    if ledger.head is None:
        return StateInvalid("there is no such session", path=f"session {ledger.session!r}", session=ledger.session)
    return StateInvalid(
        f"session {ledger.session!r} has no checkpoint {number}; the latest is {ledger.progress.checkpoint}",
        path=f"checkpoint {number}",
        session=ledger.session,
    )
