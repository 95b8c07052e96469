"""Running a turn again from its record, without any call: the calls, and the agents as they were before the turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from midturn.errors import NotFound
from midturn.framework import Answer
from midturn.history.checkpoints import read_checkpoint
from midturn.journal.journal import as_recorded
from midturn.journal.order import Order
from midturn.questions import denied
from midturn.record.head import Kind
from midturn.stopping import Postponed, fail
from midturn.versions.blueprint import build, fingerprint_of
from midturn.versions.loading import fit_stored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from midturn.framework import Framework, Request
    from midturn.journal.recorded import Entry, Recorded
    from midturn.lease.ledger import Ledger
    from midturn.record.rows import CallRow
    from midturn.redaction import Redaction
    from midturn.stopping import Stop
    from midturn.versions.blueprint import Blueprint


class UnknownCall(Exception):
    """The turn makes a call now that is not recorded, or raises an error."""


class EndOfRecord(Postponed):
    """The record ends here: the turn did not get further, or not yet."""


class RecordedCalls:
    """Calls that are answered from the journal only.

    While the turn is ``growing``, because another worker runs it, a call that is not recorded waits until it is.
    """

    recording = True

    def __init__(
        self, known: Recorded, halt: Stop, *, growing: bool = False, redaction: Redaction | None = None
    ) -> None:
        self._known = known
        self.redaction = redaction
        self._halt = halt
        self._order = Order(known.entries, self._rest)
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._growing = growing
        self._whole = not growing
        """True if the turn has a result, so that every call of it is recorded."""
        self._grown: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()
        self._stuck = 0
        """Number of calls that wait for a record that will not come."""
        self.notes: list[str] = []

    @property
    def replaying(self) -> bool:
        return False  # whoever follows a turn sees its events for the first time

    async def enter(self) -> None:
        await self._order.gate.enter()

    async def quiet(self) -> None:
        await self._order.gate.quiet()

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        _ = make
        entry = await self._find(await self._as_recorded(request))
        if self.redaction is not None:
            self.redaction.learn(entry.value)
        return Answer(value=entry.value, spent=entry.row.spent)

    async def ask(self, request: Request, question: str) -> str:
        request = await self._as_recorded(replace(request, question=question))
        return str((await self._find(request)).value["text"])

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        _ = see
        nth = self._counts[path, "tools", ""]
        self._counts[path, "tools", ""] += 1
        while True:
            for first, tools in reversed(self._known.seen.get(path, ())):
                if first <= nth:
                    return list(tools)
            if not self._growing:
                return await self._miss(f"{path}: lists its tools, which it did not do in the recorded turn")
            await asyncio.shield(self._grown)

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        request = await self._as_recorded(request)
        entry = await self._find(replace(request, what="approval"))
        if entry.value["decision"] == "deny":
            return None, denied(entry.value["text"])
        return request.changed(entry.value["arguments"]), None

    async def fail(self, error: Exception) -> NoReturn:
        await self._stop(UnknownCall(f"raises {type(error).__name__}: {error}"))

    def grow(self, rows: Sequence[tuple[CallRow, dict[str, Any]]]) -> None:
        """Add calls that were recorded since."""
        known = len(self._known.entries)
        for row, value in rows:
            self._known.add(row, value)
        self._order.extend(self._known.entries[known:])
        self._wake()

    def end(self, *, whole: bool) -> None:
        """Note that no more calls will be recorded; ``whole`` is true if the turn has a result."""
        self._growing, self._whole = False, whole
        self._wake()

    async def close(self) -> None:
        await self._order.close()
        self._grown.cancel()
        self._ended.cancel()

    async def _as_recorded(self, request: Request) -> Request:
        return request if self.redaction is None else await as_recorded(request, self.redaction)

    async def _find(self, request: Request) -> Entry:
        await self.enter()
        same = (request.path, request.what, request.key)
        nth = self._counts[same]
        self._counts[same] += 1
        entry = self._known.find(*same, nth)
        while entry is None and self._growing:
            await asyncio.shield(self._grown)
            entry = self._known.find(*same, nth)
        if entry is None:
            others = list(self._known.unclaimed(request.path, request.what))
            if request.what not in ("model", "human") or not others:
                was = ", ".join(f"{each.row.name}({each.row.about})" for each in others) or "nothing"
                now = request.name or request.what
                await self._miss(f"{request.path}: calls {now} now, and called {was} in the recorded turn")
            entry = others[0]
            self.notes.append(f"{request.path}: its request has changed")
        self._known.claim(entry)
        await self._order.take(entry)
        return entry

    async def _miss(self, what: str) -> NoReturn:
        """End the run, because a call is not recorded. If the record may be incomplete, make the other calls first."""
        if self._whole:
            await self._stop(UnknownCall(what))
        self._stuck += 1
        self._order.ask()
        await asyncio.shield(self._ended)  # shielded: one caller may be cancelled before the others
        raise AssertionError

    def _rest(self) -> None:
        """End the run if calls are stuck. The order calls this when no other call is left."""
        if self._stuck:
            fail(self._halt, EndOfRecord())

    async def _stop(self, error: Exception) -> NoReturn:
        fail(self._halt, error)
        await asyncio.shield(self._ended)  # shielded: one caller may be cancelled before the others
        raise AssertionError

    def _wake(self) -> None:
        if not self._grown.done():
            self._grown.set_result(None)
            self._grown = asyncio.get_running_loop().create_future()


async def check_kept(ledger: Ledger, first: int, after: int, removed: str) -> None:
    """Check that the calls with ``first <= number < after``, which are those of one turn, are still there.

    Raises:
        NotFound: they were removed; ``removed`` says so.
    """
    if first < after and not await ledger.store.rows(ledger.session, Kind.CALL, start=first, stop=first + 1):
        hint = "Keep the calls of more turns: session(..., journals=50)."
        raise NotFound(removed, session=ledger.session, hint=hint)


async def built_before(
    ledger: Ledger,
    checkpoint: int,
    blueprint: Blueprint,
    framework: Framework[Any, Any],
    redaction: Redaction | None = None,
) -> Any:
    """Return a new agent or team with the state of a checkpoint; without a state if it is 0.

    The ``redaction`` learns that the texts in that state are final.

    Raises:
        StateInvalid: the state does not fit.
    """
    live = await build(blueprint, framework)
    if checkpoint:
        stored = await read_checkpoint(ledger, checkpoint)
        if redaction is not None:
            redaction.learn(stored.tree)
        built = await fingerprint_of(live, framework)
        fitted = await fit_stored(stored, live, built, blueprint, framework, session=ledger.session, on_drift="ignore")
        await framework.load(live, fitted.plan)
    await framework.prepare(live)
    return live
