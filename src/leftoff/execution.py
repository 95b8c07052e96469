"""Running one turn of a session whose lease is held: accept, run, commit; or record that it failed."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic

from leftoff import turns
from leftoff.errors import (
    LeaseLost,
    LeftoffError,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    TurnFailed,
)
from leftoff.framework import EventT_co, Outcome, ResultT_co
from leftoff.history import messages_of, read_bodies
from leftoff.records import Kind, Row
from leftoff.turns import CheckpointRow, FailureRow, KeyRow, OpenTurn, TurnRow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from leftoff.codec import Json
    from leftoff.framework import Cancellation, Framework
    from leftoff.instance import Instance
    from leftoff.ledger import Ledger
    from leftoff.turns import Ended, Origin


class Execution(Generic[EventT_co, ResultT_co]):
    """The turns of one session, run one at a time."""

    def __init__(
        self,
        ledger: Ledger,
        instance: Instance[EventT_co, ResultT_co],
        framework: Framework[EventT_co, ResultT_co],
    ) -> None:
        self._ledger = ledger
        self._instance = instance
        self._framework = framework

    async def begin(self, task: list[Json] | None, key: str | None, key_number: int, digest: str) -> None:
        """Accept an input: durable, with the lease, before anything runs."""
        await self._instance.load(self._ledger)
        progress, archive = self._ledger.progress, self._instance.archive
        turn = progress.turn + 1
        numbers = None
        if task is not None:
            self._framework.check(self._instance.live, task)
            numbers = [archive.message(message, f"task[{i}]") for i, message in enumerate(task)]
        rows = [*archive.new_bodies(), _row(Kind.TURN, turn, TurnRow(task=numbers, at=_now(), key=key))]
        if key is not None:
            rows.append(_row(Kind.KEY, key_number, KeyRow(key=key, turn=turn, task=digest)))
        opened = OpenTurn(turn=turn, status="running")
        await self._ledger.write(
            status="running", progress=replace(progress, turn=turn, bodies=archive.bodies, open=opened), rows=rows
        )

    async def finish(
        self, token: Cancellation | None, task: Sequence[Json] | None
    ) -> AsyncGenerator[EventT_co | ResultT_co, None]:
        """Run the open turn, whose lease is held, and commit it."""
        opened = self._ledger.progress.open
        if opened is None:
            raise LeaseLost(f"session {self._ledger.session!r} has no open turn any more", session=self._ledger.session)
        turn = opened.turn
        try:
            await self._instance.load(self._ledger)
            outcome: Outcome | None = None
            async with aclosing(self._events(task, token)) as events:
                async for item in events:
                    if isinstance(item, Outcome):
                        outcome = item
                    else:
                        yield item
            tree = await self._framework.capture(self._instance.live)
            await self._commit(turn, tree, outcome, "run", [])
        except (asyncio.CancelledError, GeneratorExit) as error:
            await self._abort(turn, "cancelled", error)
            raise
        except (LeaseLost, SessionDeleted, StoreUnavailable, StoreFull):
            self._instance.forget()  # The store has the last word: as far as it knows, the turn was interrupted.
            raise
        except LeftoffError as error:
            await self._abort(turn, "failed", error)
            raise
        except Exception as error:
            await self._abort(turn, "failed", error)
            raise TurnFailed(
                f"turn {turn} of session {self._ledger.session!r} failed: {_describe(error)}\n"
                "The state is as it was before it. run() goes on with another task, resume() tries this one again.",
                session=self._ledger.session,
                turn=turn,
            ) from error
        yield self._framework.result(
            self._instance.live, turn=turn, checkpoint=turn, outcome=outcome or Outcome(messages=[])
        )

    async def _events(
        self, task: Sequence[Json] | None, token: Cancellation | None
    ) -> AsyncGenerator[EventT_co | Outcome, None]:
        """What the framework's run yields, until it ends, the token is cancelled or the lease is lost."""
        loop = asyncio.get_running_loop()
        stop: asyncio.Future[None] = loop.create_future()
        if token is not None:
            token.add_callback(lambda: loop.call_soon_threadsafe(_cancel, stop))
        holding = asyncio.create_task(self._ledger.hold(stop))
        stream = self._framework.stream(self._instance.live, task)
        try:
            while True:
                step = asyncio.ensure_future(anext(stream, None))
                either: set[asyncio.Future[Any]] = {step, stop}
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                    if stop.done():
                        stop.result()  # CancelledError, or LeaseLost
                    item = step.result()
                finally:
                    if not step.done():
                        step.cancel()
                        await asyncio.wait({step})
                if item is None:
                    return
                yield item
        finally:
            await stream.aclose()
            _end(stop)
            await asyncio.wait({holding})

    async def save(self, tree: Any, origin: Origin) -> int:
        """Commit a state that no turn has made; the number of its checkpoint."""
        await self._instance.read(self._ledger)
        number = self._ledger.progress.turn + 1
        await self._commit(number, tree, None, origin, [_row(Kind.TURN, number, TurnRow(at=_now()))])
        return number

    async def _commit(
        self,
        turn: int,
        tree: Any,
        outcome: Outcome | None,
        origin: Origin,
        rows: list[Row],
    ) -> None:
        """Write the checkpoint, the result and the turn's end at once, and give the lease back."""
        progress, archive, blueprint = self._ledger.progress, self._instance.archive, self._instance.blueprint
        packed = archive.pack(tree)
        messages: Sequence[Json] = () if outcome is None else outcome.messages
        checkpoint = CheckpointRow(
            parent=progress.checkpoint,
            skeleton=packed.skeleton,
            spans=packed.spans,
            messages=[archive.message(message, f"result[{i}]") for i, message in enumerate(messages)],
            bodies=archive.bodies,
            at=_now(),
            origin=origin,
            blueprint=blueprint.name,
            version=blueprint.version,
            stop_reason=outcome.stop_reason if outcome is not None else None,
            usage=outcome.usage if outcome is not None else (0, 0),
        )
        if packed.appends:
            rows.append(Row(kind=Kind.LOG, n=turn, data=turns.encode_appends(packed.appends)))
        rows.append(_row(Kind.CHECKPOINT, turn, checkpoint))
        await self._ledger.write(
            status="idle",
            progress=replace(progress, turn=turn, checkpoint=turn, bodies=archive.bodies, logs=archive.logs, open=None),
            rows=[*archive.new_bodies(), *rows],
            release=True,
        )
        self._instance.checkpoint = turn

    async def _abort(self, turn: int, status: Ended, error: BaseException) -> None:
        """Record that a turn ended without a checkpoint, and never use its instance again."""
        self._instance.forget()
        progress = self._ledger.progress
        if progress.open is None or not self._ledger.owned:
            return  # It was cancelled when its commit had already been written.
        failure = FailureRow(turn=turn, status=status, error=_describe(error), at=_now())
        try:
            await self._ledger.write(
                status="failed",
                progress=replace(progress, failures=progress.failures + 1, open=OpenTurn(turn=turn, status=status)),
                rows=[_row(Kind.FAILURE, progress.failures, failure)],
                release=True,
            )
        except LeftoffError as also:
            error.add_note(f"leftoff could not record the end of turn {turn} either: {also}")

    async def recorded(self, turn: int) -> ResultT_co | None:
        """The result of a turn that is done."""
        row = await self._ledger.read(Kind.CHECKPOINT, CheckpointRow, turn)
        if row is None:
            return None
        messages = messages_of(await read_bodies(self._ledger, row.bodies), row.messages)
        outcome = Outcome(messages=messages or [], stop_reason=row.stop_reason, usage=(row.usage[0], row.usage[1]))
        live = self._instance.live or await self._instance.blueprint.build()
        return self._framework.result(live, turn=turn, checkpoint=turn, outcome=outcome)

    async def task(self) -> list[Json] | None:
        """The input of the open turn, as it was accepted."""
        turn = self._ledger.progress.turn
        row = await self._ledger.read(Kind.TURN, TurnRow, turn)
        if row is None:
            raise StateInvalid("is missing", path=self._ledger.name(Kind.TURN, turn), session=self._ledger.session)
        return messages_of(await read_bodies(self._ledger, self._ledger.progress.bodies), row.task)


def _row(kind: Kind, n: int, record: object) -> Row:
    return Row(kind=kind, n=n, data=turns.encode(record))


def _now() -> float:
    return round(time.time(), 3)


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"[: turns.MAX_ERROR].rstrip(": ")
    return text.encode(errors="replace").decode()


def _cancel(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.cancel()


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
    elif not future.cancelled():
        future.exception()  # so that asyncio does not report it as never looked at
