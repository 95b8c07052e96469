"""A session: the life of a turn, from the lease to the commit. ``docs/turn.md`` tells it in prose."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from leftoff import codec, turns
from leftoff.errors import (
    Conflict,
    LeaseLost,
    LeftoffError,
    SessionBusy,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
    TurnFailed,
)
from leftoff.framework import EventT, Outcome, ResultT
from leftoff.history import Checkpoint, history, messages_of, read_bodies
from leftoff.instance import Instance
from leftoff.ledger import LEASE, Ledger
from leftoff.records import Kind, Row
from leftoff.turns import CheckpointRow, FailureRow, KeyRow, OpenTurn, TurnRow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from leftoff.codec import Json
    from leftoff.framework import Cancellation, Framework
    from leftoff.history import Turn
    from leftoff.store import Store
    from leftoff.turns import Ended, Origin

Busy: TypeAlias = Literal["wait", "raise"]

MAX_KEY = 500


class Session(Generic[EventT, ResultT]):
    """One long-running conversation or case: a drop-in for the framework's own task runner that remembers.

    ``id`` is its name in the store. Two calls at once on one session run one after the other.
    """

    def __init__(
        self,
        store: Store,
        session: str,
        what: object,
        framework: Framework[EventT, ResultT],
        *,
        labels: Mapping[str, str] | None = None,
        busy: Busy = "wait",
        timeout: float = 30.0,  # noqa: ASYNC109 - how long to wait for another worker, not for the work
    ) -> None:
        self.id = session
        self._ledger = Ledger(store, session, labels=labels)
        self._framework = framework
        self._instance = Instance(what, framework)
        self._busy: Busy = busy
        self._timeout = timeout
        self._mutex = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    async def run(
        self, task: Any = None, *, key: str | None = None, cancellation_token: Cancellation | None = None  # noqa: ANN401
    ) -> ResultT:
        """Run a turn to its end and return its result, which is durable by then.

        With a ``key`` the same turn delivered twice runs once: a known key returns the recorded result.

        Raises:
            TurnFailed: the agent or team raised; the state is as before, ``resume()`` tries the turn again.
            SessionBusy: another worker holds the session and did not finish in time.
            Conflict: the key was used before, for another task.
        """
        return await _last(self._stream(self._framework.accept(task), key, cancellation_token))

    async def run_stream(
        self, task: Any = None, *, key: str | None = None, cancellation_token: Cancellation | None = None  # noqa: ANN401
    ) -> AsyncGenerator[EventT | ResultT, None]:
        """As :meth:`run`, with the events as they happen and the result as the last item."""
        async with aclosing(self._stream(self._framework.accept(task), key, cancellation_token)) as stream:
            async for item in stream:
                yield item

    async def resume(self, *, cancellation_token: Cancellation | None = None) -> ResultT | None:
        """Finish a turn that crashed, or try again one that failed or was cancelled; ``None`` if there is none.

        Raises:
            TurnFailed: it failed again.
        """
        async with self._alone() as until:
            while True:
                await self._meet(until)
                if self._ledger.progress.open is None:
                    return None
                try:
                    await self._take(reopen=True)
                except Conflict:
                    self._instance.forget()
                    continue
                return await _last(self._finish(cancellation_token, await self._task()))

    async def history(self) -> AsyncGenerator[Turn, None]:
        """All turns, oldest first, also those that failed."""
        ledger = Ledger(self._ledger.store, self.id)
        await ledger.refresh()
        async for turn in history(ledger):
            yield turn

    def at(self, checkpoint: int) -> Checkpoint:
        """The checkpoint with that number, to be read."""
        return Checkpoint(Ledger(self._ledger.store, self.id), checkpoint)

    async def delete(self) -> bool:
        """Delete the session for good; whether there was something to delete."""
        self._instance.forget()
        return await self._ledger.store.delete(self.id)

    async def save(self, tree: Any = None, *, origin: Origin = "save") -> int:  # noqa: ANN401 - a captured state
        """Store the state of the given live instance (or ``tree``) as a checkpoint, running nothing; its number.

        Raises:
            Conflict: a crashed turn is open; it has to be finished first.
        """
        if tree is None:
            tree = await self._framework.capture(self._instance.given())
        async with self._alone() as until:
            while True:
                await self._ledger.refresh()
                await self._meet(until)
                if self._interrupted():
                    raise TurnFailed(
                        f"turn {self._ledger.progress.turn} of session {self.id!r} was interrupted; "
                        "finish it with resume() before saving by hand",
                        session=self.id,
                        turn=self._ledger.progress.turn,
                    )
                await self._instance.read(self._ledger)
                number = self._ledger.progress.turn + 1
                try:
                    await self._commit(number, tree, None, origin, [_row(Kind.TURN, number, TurnRow(at=_now()))])
                except Conflict:
                    self._instance.forget()
                    continue
                return number

    async def load(self) -> int:
        """Give the given live instance the state of the latest checkpoint; its number, 0 if there is none.

        Raises:
            StateInvalid: the state does not fit; the instance has its old state again.
        """
        await self._ledger.refresh()
        return await self._instance.load_given(self._ledger)

    async def _stream(
        self, task: list[Json] | None, key: str | None, token: Cancellation | None
    ) -> AsyncGenerator[EventT | ResultT, None]:
        """One turn: the events, then the result."""
        digest = turns.task_digest(task and [self._framework.identity(message) for message in task])
        contended = False
        async with self._alone() as until:
            while True:
                await self._meet(until)
                number, known = (0, None) if key is None else await self._ledger.key(_check_key(key))
                if known is not None:
                    if known.task != digest:
                        raise Conflict(f"key {key!r} of session {self.id!r} belongs to another task", session=self.id)
                    if (recorded := await self._recorded(known.turn)) is not None:
                        yield recorded
                        return
                opened = self._ledger.progress.open
                try:
                    if opened is not None and known is not None and opened.turn == known.turn:
                        await self._take(reopen=True)
                        task = await self._task()
                    elif self._interrupted():
                        await self._take(reopen=True)
                        await _last(self._finish(None, await self._task()))
                        continue
                    else:
                        if contended:  # with the lease held first, the state that is read next is the last one
                            await self._take()
                        await self._begin(task, key, number, digest)
                    break
                except Conflict:
                    contended = True
                    self._instance.forget()
            async with aclosing(self._finish(token, task)) as stream:
                async for item in stream:
                    yield item

    async def _begin(self, task: list[Json] | None, key: str | None, key_number: int, digest: str) -> None:
        """Accept an input: durable, with the lease, before anything runs."""
        await self._instance.load(self._ledger)
        progress, archive = self._ledger.progress, self._instance.archive
        turn = progress.turn + 1
        numbers = task and [archive.message(message, f"task[{i}]") for i, message in enumerate(task)]
        rows = [*archive.new_bodies(), _row(Kind.TURN, turn, TurnRow(task=numbers, at=_now(), key=key))]
        if key is not None:
            rows.append(_row(Kind.KEY, key_number, KeyRow(key=key, turn=turn, task=digest)))
        opened = OpenTurn(turn=turn, status="running")
        await self._ledger.write(
            status="running", progress=replace(progress, turn=turn, bodies=archive.bodies, open=opened), rows=rows
        )

    async def _finish(
        self, token: Cancellation | None, task: Sequence[Json] | None
    ) -> AsyncGenerator[EventT | ResultT, None]:
        """Run the open turn, whose lease is held, and commit it."""
        opened = self._ledger.progress.open
        if opened is None:
            raise LeaseLost(f"session {self.id!r} has no open turn any more", session=self.id)
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
                f"turn {turn} of session {self.id!r} failed: {_describe(error)}\n"
                "The state is as it was before it. run() goes on with another task, resume() tries this one again.",
                session=self.id,
                turn=turn,
            ) from error
        yield self._framework.result(
            self._instance.live, turn=turn, checkpoint=turn, outcome=outcome or Outcome(messages=[])
        )

    async def _events(
        self, task: Sequence[Json] | None, token: Cancellation | None
    ) -> AsyncGenerator[EventT | Outcome, None]:
        """What the framework's run yields, until it ends, the token is cancelled or the lease is lost."""
        loop = asyncio.get_running_loop()
        stop: asyncio.Future[None] = loop.create_future()
        if token is not None:
            token.add_callback(lambda: loop.call_soon_threadsafe(_cancel, stop))
        renewing = asyncio.create_task(self._renew(stop))
        stream = self._framework.stream(self._instance.live, task)
        try:
            while True:
                step = asyncio.ensure_future(anext(stream, None))
                try:
                    await asyncio.wait({step, stop}, return_when=asyncio.FIRST_COMPLETED)
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
            await asyncio.wait({renewing})

    async def _renew(self, stop: asyncio.Future[None]) -> None:
        """Keep the lease until ``stop``; a lost lease stops the run."""
        while not stop.done():
            await asyncio.wait({stop}, timeout=LEASE / 3)
            if not stop.done():
                try:
                    await self._ledger.renew()
                except StoreUnavailable:
                    continue  # The next write tells whether the lease is still held; until then the turn goes on.
                except LeftoffError as error:
                    if not stop.done():
                        stop.set_exception(error)

    async def _commit(
        self, turn: int, tree: Any, outcome: Outcome | None, origin: Origin, rows: list[Row]  # noqa: ANN401 - a state
    ) -> None:
        """Write the checkpoint, the result and the turn's end at once, and give the lease back."""
        progress, archive, blueprint = self._ledger.progress, self._instance.archive, self._instance.blueprint
        packed = archive.pack(tree)
        messages = [] if outcome is None else outcome.messages
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
            stop_reason=outcome and outcome.stop_reason,
            usage=outcome.usage if outcome is not None else (0, 0),
        )
        if packed.appends:
            rows.append(Row(kind=Kind.LOG, n=turn, data=turns.encode_appends(packed.appends)))
        rows.append(_row(Kind.CHECKPOINT, turn, checkpoint))
        await self._ledger.write(
            status="idle",
            progress=replace(
                progress, turn=turn, checkpoint=turn, bodies=archive.bodies, logs=archive.logs, open=None
            ),
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
                progress=replace(
                    progress, failures=progress.failures + 1, open=OpenTurn(turn=turn, status=status)
                ),
                rows=[_row(Kind.FAILURE, progress.failures, failure)],
                release=True,
            )
        except LeftoffError as also:
            error.add_note(f"leftoff could not record the end of turn {turn} either: {also}")

    async def _take(self, *, reopen: bool = False) -> None:
        """Take the lease, if it is not held; ``reopen`` says that the open turn is run next."""
        progress, head = self._ledger.progress, self._ledger.head
        if reopen and progress.open is not None:
            progress = replace(progress, open=replace(progress.open, status="running"))
            await self._ledger.write(status="running", progress=progress)
        elif not self._ledger.owned:
            await self._ledger.write(status=head.status if head is not None else "idle", progress=progress)

    async def _meet(self, until: float) -> None:
        """Know the session, and wait while another worker holds it."""
        if self._instance.live is None:
            await self._ledger.refresh()
        await self._ledger.wait(until=until)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[float]:
        """One call at a time in this process; until when to wait for other workers; the lease given back at the end."""
        wait = self._timeout if self._busy == "wait" else 0.0
        until = time.monotonic() + wait
        if self._mutex.locked() and self._busy == "raise":
            raise SessionBusy(f"session {self.id!r} runs a turn in this process", session=self.id, owner="this process")
        try:
            await asyncio.wait_for(self._mutex.acquire(), wait or None)
        except TimeoutError:
            raise SessionBusy(
                f"session {self.id!r} still runs a turn in this process; wait longer: session(..., timeout=60)",
                session=self.id,
                owner="this process",
            ) from None
        try:
            yield until
        except BaseException:
            self._instance.forget()
            raise
        finally:
            try:
                await self._release()
            finally:
                self._mutex.release()

    async def _release(self) -> None:
        """Give back a lease that was taken for nothing."""
        head = self._ledger.head
        if head is not None and self._ledger.owned:
            self._instance.forget()
            with suppress(LeftoffError):  # it expires by itself
                await self._ledger.write(status=head.status, progress=self._ledger.progress, release=True)

    async def _recorded(self, turn: int) -> ResultT | None:
        """The result of a turn that is done."""
        row = await self._ledger.read(Kind.CHECKPOINT, CheckpointRow, turn)
        if row is None:
            return None
        messages = messages_of(await read_bodies(self._ledger, row.bodies), row.messages)
        outcome = Outcome(messages=messages or [], stop_reason=row.stop_reason, usage=(row.usage[0], row.usage[1]))
        live = self._instance.live or await self._instance.blueprint.build()
        return self._framework.result(live, turn=turn, checkpoint=turn, outcome=outcome)

    async def _task(self) -> list[Json] | None:
        """The input of the open turn, as it was accepted."""
        turn = self._ledger.progress.turn
        row = await self._ledger.read(Kind.TURN, TurnRow, turn)
        if row is None:
            raise StateInvalid("is missing", path=self._ledger.name(Kind.TURN, turn), session=self.id)
        return messages_of(await read_bodies(self._ledger, self._ledger.progress.bodies), row.task)

    def _interrupted(self) -> bool:
        """Whether the open turn was neither finished nor reported to anybody: its worker died."""
        opened = self._ledger.progress.open
        return opened is not None and opened.status == "running"


async def _last(stream: AsyncGenerator[Any, None]) -> Any:  # noqa: ANN401 - the last item is the result
    async with aclosing(stream):
        item = None
        async for item in stream:
            pass
        return item


def _row(kind: Kind, n: int, record: object) -> Row:
    return Row(kind=kind, n=n, data=turns.encode(record))


def _now() -> float:
    return round(time.time(), 3)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[: turns.MAX_ERROR].rstrip(": ")


def _check_key(key: str) -> str:
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise StateInvalid(f"must be a string of 1 to {MAX_KEY} characters", path="key")
    codec.check(key, "key")
    return key


def _cancel(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.cancel()


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
    elif not future.cancelled():
        future.exception()  # so that asyncio does not report it as never looked at
