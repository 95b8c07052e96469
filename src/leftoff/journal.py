"""The calls of one turn: each is recorded when it is complete, and never made again.

A turn that was interrupted is run again from its beginning. What was called then is answered from here, in the order in
which it came then; what was not, is called now. ``docs/turn.md`` tells it in prose.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from leftoff import turns
from leftoff.calling import inside, is_inside
from leftoff.effects import Call
from leftoff.errors import LeftoffError, ReplayDiverged
from leftoff.framework import Answer
from leftoff.ordering import Order, Place, quiet
from leftoff.questions import Waiting
from leftoff.recorded import digest, foreign, question_of
from leftoff.records import Kind, Row
from leftoff.turns import CallRow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from leftoff.framework import Request
    from leftoff.ledger import Ledger
    from leftoff.questions import Question
    from leftoff.recorded import Entry, Recorded
    from leftoff.state import Archive
    from leftoff.stopping import Stop
    from leftoff.turns import Stage, What

SHOWN = 200
"""Characters of a call's arguments that are kept for people."""


FAILED = "It is not known whether this call took effect; a human decided to treat it as failed."


class Suspended(Exception):
    """The turn cannot go on before a human has answered."""

    def __init__(self, waiting: Waiting, rows: Sequence[CallRow]) -> None:
        super().__init__("the turn waits for an answer")
        self.waiting = waiting
        self.rows = rows
        """The questions that are not recorded yet."""


class Journal:
    """The calls of a turn that runs."""

    def __init__(
        self,
        ledger: Ledger,
        archive: Archive,
        recorded: Recorded,
        *,
        born: float,
        halt: Stop,
        diverged: str,
    ) -> None:
        self._ledger = ledger
        self._archive = archive
        self._recorded = recorded
        self._born = born
        """When the turn was begun: no other turn of the session has the same time and number."""
        self._halt = halt
        self._diverged = diverged
        self._started = time.monotonic()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._order = Order(recorded.entries, self._rest)
        self._asking: dict[str, tuple[Question, CallRow]] = {}
        self._pending: list[tuple[CallRow, asyncio.Future[Place] | None]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Future[Any]] = set()
        self._closed = False
        self._notes: dict[str, None] = {}
        self._seen: dict[str, list[Any]] = {}
        self._announced: Counter[str] = Counter()
        """The calls that models have asked for in this attempt; that is recorded, so they need no record of their own
        when they begin."""

    @property
    def replaying(self) -> bool:
        return self._order.replaying

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        if is_inside():
            return await make(request.arguments)
        self._check_open()
        nth = self._count(request)
        entry = self._recorded.find(request.path, request.what, request.key, nth)
        if entry is not None:
            await self._claim(entry)
            return Answer(value=entry.value, spent=entry.row.spent)
        await self._check_new(request)
        arguments = request.arguments
        if request.approval:
            decision = await self._question(request, "approval", nth, _may(request))
            if decision["decision"] == "deny":
                return await self._complete(request, nth, _told(request, _denied(decision["text"]), failed=True))
            arguments = dict(arguments) | dict(decision["arguments"] or {})
        if request.effect == "unsafe":
            known = await self._settle(request, nth)
            if known is not None:
                return await self._complete(request, nth, known)
        return await self._make(request, nth, arguments, make)

    async def ask(self, request: Request, question: str) -> str:
        self._check_open()
        return str((await self._question(request, "human", self._count(request), question))["text"])

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        self._check_open()
        nth = self._counts[path, "tools", ""]
        self._counts[path, "tools", ""] += 1
        for first, known in reversed(self._recorded.seen.get(path, ())):
            if self.replaying and first <= nth:
                return list(known)
        tools = await see()
        if self._seen.get(path) != tools:
            self._seen[path] = tools
            value = self._archive.inline({"tools": tools}, path)
            row = CallRow(path=path, what="tools", key="", nth=nth, spent=self._spent(), value=value)
            self._pending.append((row, None))
        return tools

    def finish(self) -> list[str]:
        """Whether all that was done has its place in the turn as it ended now; what was not as before.

        Raises:
            ReplayDiverged: it has not.
        """
        lost = [entry for entry in self._recorded.unclaimed() if entry.row.effect != "read"]
        if lost and self._diverged != "continue":
            raise self._divergence(lost, None)
        for entry in lost:
            self._note(f"{_shown(entry.row)} was done, and the turn as it ended does not know of it")
        return list(self._notes)

    async def close(self) -> None:
        """Make no more calls; what is being written is written to its end, and whoever waits is cancelled."""
        self._closed = True
        await self._order.close()
        if self._flushing is not None:
            await self._flushing
        for waiter in list(self._waiters):
            waiter.cancel()

    # One call.

    def _count(self, request: Request) -> int:
        """How many equal calls were made before this one."""
        same = (request.path, request.what, request.key)
        self._counts[same] += 1
        return self._counts[same] - 1

    async def _claim(self, entry: Entry) -> None:
        entry.claimed = True
        await self._order.take(entry)

    async def _check_new(self, request: Request) -> None:
        """See whether a call that is not recorded takes the place of one that is."""
        if not self._recorded.entries:
            return
        if request.what == "model":
            if self._recorded.unclaimed(path=request.path, what="model"):
                self._note(f"{request.path}: the model was asked again, because its request had changed")
        elif request.effect != "read" and not self._recorded.announced(request.key):
            await quiet()  # what runs beside it may be about to claim its own
            done = self._recorded.unclaimed(path=request.path, name=request.name, effect=request.effect)
            if done and self._diverged != "continue":
                await self._stop(self._divergence(done, f"{request.name}({_about(request.arguments)})"))

    async def _settle(self, request: Request, nth: int) -> Answer | None:
        """What became of a call that was begun and whose end is not recorded; ``None`` if it is to be made."""
        begun = self._recorded.begun(request.key, nth, announced=not request.approval)
        if begun and request.reconcile is not None:
            found = request.reconcile(self._facts(request, nth))
            if isawaitable(found):
                found = await found
            return None if found is None else _told(request, str(found), failed=False)
        for attempt in range(begun):
            decision = await self._question(request, "doubt", nth, _did(request), attempt)
            match decision["decision"]:
                case "done":
                    return _told(request, decision["text"], failed=False)
                case "fail":
                    return _told(request, FAILED, failed=True)
                case _:
                    continue
        return None

    async def _make(
        self, request: Request, nth: int, arguments: Any, make: Callable[[Any], Awaitable[Answer]]
    ) -> Answer:
        begun = self._recorded.begun(request.key, nth, announced=True)
        with self._running():
            if request.effect == "unsafe" and (begun or request.approval or not self._announced[request.key] > nth):
                await self._append(self._row(request, nth, stage="started"))
            with inside(self._key(request, nth)):
                answer = await make(arguments)
        return await self._complete(request, nth, answer)

    async def _complete(self, request: Request, nth: int, answer: Answer) -> Answer:
        """Record what came of a call, and wait for its place in the order."""
        with self._running():
            try:
                row = self._row(request, nth, value=answer.value, starts=answer.starts)
            except LeftoffError as error:  # it cannot be stored
                await self._stop(error)
            place = await self._append(row)
        self._announced.update(answer.starts)
        await self._order.take(place)
        return answer

    async def _question(self, request: Request, what: What, nth: int, text: str, attempt: int = 0) -> dict[str, Any]:
        """What a human decided; without it, this does not return."""
        key = f"{request.key}#{attempt}" if attempt else request.key
        if (entry := self._recorded.find(request.path, what, key, nth)) is not None:
            await self._claim(entry)
            return entry.value
        if is_inside():
            raise LookupError("a human cannot be asked inside a tool; put the agent in an AgentTool or a TeamTool")
        facts = {"question": text, "agent": request.agent, "arguments": request.arguments}
        row = replace(self._row(request, nth, stage="asked", value=facts), what=what, key=key, effect="read")
        question = question_of(row, facts)
        self._asking[question.id] = question, row
        self._order.ask()
        await self._wait(self._waiter())
        raise AssertionError

    def _rest(self) -> None:
        """Nothing runs any more: if somebody was asked, the turn waits."""
        if self._asking:
            new = [row for id_, (_, row) in self._asking.items() if id_ not in self._recorded.questions]
            self._halt_with(Suspended(Waiting(tuple(question for question, _ in self._asking.values())), new))

    # What is written.

    def _row(
        self,
        request: Request,
        nth: int,
        *,
        stage: Stage = "done",
        value: dict[str, Any] | None = None,
        starts: Sequence[str] = (),
    ) -> CallRow:
        return CallRow(
            path=request.path,
            what=request.what,
            key=request.key,
            nth=nth,
            stage=stage,
            spent=self._spent(),
            name=request.name,
            about=_about(request.arguments) if request.name and stage == "done" else "",
            effect=request.effect,
            value=None if value is None else self._archive.inline(value, f"{request.path}.{request.what}"),
            starts=tuple(starts),
        )

    async def _append(self, row: CallRow) -> Place:
        """Write a row; its place in the order, which only what is done has."""
        self._check_open()
        written = self._waiter()
        self._pending.append((row, written))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
        return await self._wait(written)

    async def _flush(self) -> None:
        """Write all that is pending, and what comes while that is written, until nothing is left."""
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                progress = self._ledger.progress
                rows = [
                    Row(kind=Kind.CALL, n=progress.calls + index, data=turns.encode(row))
                    for index, (row, _) in enumerate(batch)
                ]
                await self._ledger.write(
                    status="running",
                    progress=replace(progress, calls=progress.calls + len(rows), bodies=self._archive.bodies),
                    rows=[*self._archive.new_bodies(), *rows],
                )
                for row, written in batch:
                    self._tell(row, written)
        except Exception as error:  # noqa: BLE001 - whatever it is, the turn ends with it
            self._halt_with(error)

    def _tell(self, row: CallRow, written: asyncio.Future[Place] | None) -> None:
        """Tell the one who made a call that it is recorded."""
        if written is None:
            return
        place = self._order.add() if row.stage == "done" else Place()
        if written.done():  # the caller has gone
            self._order.leave(place)
        else:
            written.set_result(place)

    # The rest.

    @contextmanager
    def _running(self) -> Generator[None]:
        self._order.begin()
        try:
            yield
        finally:
            self._order.end()

    def _waiter(self) -> asyncio.Future[Place]:
        return asyncio.get_running_loop().create_future()

    async def _wait(self, waiter: asyncio.Future[Place]) -> Place:
        """Wait for something, until the turn ends: not all that AutoGen starts is cancelled with it."""
        self._check_open()
        self._waiters.add(waiter)
        try:
            return await waiter
        finally:
            self._waiters.discard(waiter)

    def _check_open(self) -> None:
        if self._closed:
            raise asyncio.CancelledError  # of a turn that has ended and whose work did not

    def _halt_with(self, error: Exception) -> None:
        if not self._halt.done():
            self._halt.set_exception(error)
            self._halt.exception()  # looked at already, if nobody else does

    async def _stop(self, error: Exception) -> NoReturn:
        """End the turn with an error. It is not raised here: the framework would make another one of it."""
        self._halt_with(error)
        await self._wait(self._waiter())
        raise AssertionError

    def _divergence(self, done: Sequence[Entry], now: str | None) -> ReplayDiverged:
        session, turn = self._ledger.session, self._ledger.progress.turn
        recorded = [_shown(entry.row) for entry in done]
        instead = f"calls {now} now" if now else "ends without them now"
        return ReplayDiverged(
            f"turn {turn} of session {session!r} was interrupted after {', '.join(recorded)}; the code has changed "
            f"since, and {instead}.\nNothing was repeated. Go on all the same, knowing that they are done: "
            f'resume(diverged="continue"). Give the turn up: discard(). Or go on from before it under another id: '
            f'fork("...", at={self._ledger.progress.checkpoint}).',
            session=session,
            turn=turn,
            recorded=recorded,
            now=now,
        )

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def _spent(self) -> float:
        return round(self._recorded.spent + time.monotonic() - self._started, 3)

    def _key(self, request: Request, nth: int) -> str:
        ledger = self._ledger
        return digest(ledger.session, ledger.progress.turn, self._born, request.path, request.key, nth)

    def _facts(self, request: Request, nth: int) -> Call:
        return Call(
            session=self._ledger.session,
            turn=self._ledger.progress.turn,
            agent=request.agent,
            tool=request.name,
            arguments=request.arguments or {},
            key=self._key(request, nth),
        )


def _told(request: Request, text: str, *, failed: bool) -> Answer:
    if request.told is None:
        raise AssertionError(f"a {request.what} is never in doubt")
    return Answer(value=request.told(text, failed))


def _about(arguments: Any) -> str:
    return orjson.dumps(arguments, default=foreign).decode()[:SHOWN]


def _shown(row: CallRow) -> str:
    return f"{row.name or row.what}({row.about})"


def _may(request: Request) -> str:
    return f"May {request.name}({_about(request.arguments)}) be called?"


def _did(request: Request) -> str:
    return f"{request.name}({_about(request.arguments)}) was interrupted. Did it take effect?"


def _denied(reason: str) -> str:
    return f"This call was not allowed: {reason}" if reason else "This call was not allowed."
