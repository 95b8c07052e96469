"""Running a finished turn again from its journal, without any call, to compare today's code with the record."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from midturn.errors import StateInvalid
from midturn.framework import Answer, Outcome
from midturn.history.checkpoints import messages_of, read_bodies, read_checkpoint
from midturn.history.turns import missing_turn
from midturn.journal import recorded
from midturn.journal.order import Order
from midturn.questions import denied
from midturn.record.codec import difference
from midturn.record.head import Kind
from midturn.record.rows import CheckpointRow, TurnRow
from midturn.stopping import fail
from midturn.versions.blueprint import build, fingerprint_of
from midturn.versions.loading import fit_stored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from midturn.framework import Framework, Request
    from midturn.journal.recorded import Entry, Recorded
    from midturn.lease.ledger import Ledger
    from midturn.record.codec import Json
    from midturn.stopping import Stop
    from midturn.versions.blueprint import Blueprint


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The outcome of running a turn again."""

    turn: int
    differences: Sequence[str]
    """The differences from the record: a path in the transcript, or a call."""
    notes: Sequence[str]
    """Requests to models or humans that have changed; they got the recorded answers nevertheless."""
    messages: Sequence[Json]
    """The messages of this run."""

    @property
    def same(self) -> bool:
        """Return whether the turn ran as it is recorded, apart from ids and times."""
        return not self.differences


class _Other(Exception):
    """A call that was not recorded."""


class _RecordedCalls:
    """Calls that are answered from the journal only."""

    recording = True

    def __init__(self, known: Recorded, halt: Stop) -> None:
        self._known = known
        self._halt = halt
        self._order = Order(known.entries, lambda: None)
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self.notes: list[str] = []

    @property
    def replaying(self) -> bool:
        return True

    async def enter(self) -> None:
        await self._order.gate.enter()

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        _ = make
        entry = await self._find(request)
        return Answer(value=entry.value, spent=entry.row.spent)

    async def ask(self, request: Request, question: str) -> str:
        _ = question
        return str((await self._find(request)).value["text"])

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        _ = see
        nth = self._counts[path, "tools", ""]
        self._counts[path, "tools", ""] += 1
        for first, tools in reversed(self._known.seen.get(path, ())):
            if first <= nth:
                return list(tools)
        return await self._stop(f"{path}: lists its tools, which it did not do then")

    async def close(self) -> None:
        await self._order.close()

    async def _find(self, request: Request) -> Entry:
        await self.enter()
        same = (request.path, request.what, request.key)
        entry = self._known.find(*same, self._counts[same])
        self._counts[same] += 1
        if entry is None:
            others = list(self._known.unclaimed(request.path, request.what))
            if request.what not in ("model", "human") or not others:
                was = ", ".join(f"{each.row.name}({each.row.about})" for each in others) or "nothing"
                await self._stop(f"{request.path}: calls {request.name or request.what} now, and called {was} then")
            entry = others[0]
            self.notes.append(f"{request.path}: its request has changed")
        self._known.claim(entry)
        await self._order.take(entry)
        return entry

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        entry = await self._find(replace(request, what="approval"))
        if entry.value["decision"] == "deny":
            return None, denied(entry.value["text"])
        return request.changed(entry.value["arguments"]), None

    async def fail(self, error: Exception) -> NoReturn:
        await self._stop(f"raises {type(error).__name__}: {error}")

    async def _stop(self, what: str) -> NoReturn:
        fail(self._halt, _Other(what))
        await asyncio.get_running_loop().create_future()
        raise AssertionError


async def replay(ledger: Ledger, turn: int, blueprint: Blueprint, framework: Framework[Any, Any]) -> Replay:
    """Run a finished turn again in a newly built agent or team.

    Raises:
        NotFound: there is no such turn.
        StateInvalid: the turn did not run to its end, its calls were removed, or the state before it does not fit.
    """
    name = f"turn {turn}"
    if not 1 <= turn <= ledger.progress.turn:
        raise missing_turn(ledger, turn)
    row, task = await ledger.read(Kind.CHECKPOINT, CheckpointRow, turn), await ledger.demand(Kind.TURN, TurnRow, turn)
    if row is None or row.origin != "run":
        raise StateInvalid("did not run to its end", path=name, session=ledger.session)
    bodies = await read_bodies(ledger, row.bodies)
    if not row.calls:
        raise StateInvalid('has no recorded calls; it ran with durability="turn"', path=name, session=ledger.session)
    first, after = row.calls
    if first < after and not await ledger.store.rows(ledger.session, Kind.CALL, start=first, stop=first + 1):
        raise StateInvalid(
            "its calls were removed",
            path=name,
            session=ledger.session,
            hint="Keep the calls of more turns: session(..., journals=50).",
        )
    known = await recorded.read(ledger, first, after, bodies)
    live = await build(blueprint, framework)
    if row.parent:
        stored = await read_checkpoint(ledger, row.parent)
        built = await fingerprint_of(live, framework)
        fitted = await fit_stored(stored, live, built, blueprint, framework, session=ledger.session, on_drift="ignore")
        await framework.load(live, fitted.plan)
    await framework.prepare(live)
    halt: Stop = asyncio.get_running_loop().create_future()
    calls, outcome, differences = _RecordedCalls(known, halt), Outcome(messages=[]), list[str]()
    try:
        stream = framework.stream(live, messages_of(bodies, task.task), calls, blueprint.effects, [halt])
        async with aclosing(stream):
            async for item in stream:
                outcome = item if isinstance(item, Outcome) else outcome
    except _Other as other:
        differences.append(str(other))
    except Exception as error:  # noqa: BLE001 - the code of today may raise anything: that is a difference
        differences.append(f"raises {type(error).__name__}: {error}")
    finally:
        await calls.close()
    if not differences:
        then = {"messages": messages_of(bodies, row.messages), "stop_reason": row.stop_reason}
        now = {"messages": list(outcome.messages), "stop_reason": outcome.stop_reason}
        where = difference(_comparable(framework, then), _comparable(framework, now), name)
        differences += [f"{where} is different"] if where else []
        # Models that were asked again after a change, and questions about a tool, need not be there a second time.
        left = [each.row for each in known.left() if each.row.what in ("tool", "code", "memory")]
        differences += [f"{each.path}: {each.name} is not called" for each in left]
    return Replay(turn=turn, differences=differences, notes=calls.notes, messages=list(outcome.messages))


def _comparable(framework: Framework[Any, Any], said: dict[str, Any]) -> dict[str, Any]:
    return {**said, "messages": [framework.identity(message) for message in said["messages"] or ()]}
