"""The calls of one turn: each is recorded when it is complete, and never made again.

An interrupted turn runs again from its beginning. The journal answers the recorded calls, in the order in which they
were complete, and makes all other calls. ``docs/turn.md`` explains it in prose.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NoReturn

from midturn.errors import MidturnError
from midturn.framework import Answer
from midturn.journal.appender import Appender
from midturn.journal.order import Gate, Order
from midturn.journal.recorded import call_key_of, name_of, question_of
from midturn.questions import FAILED, Waiting, denied, did, may
from midturn.record.codec import is_object
from midturn.record.digests import digest
from midturn.record.readable import readable, readable_call
from midturn.record.rows import CallRow, now
from midturn.redaction import Where, text_in, texts_in
from midturn.stopping import Resting, fail
from midturn.tools import CallInDoubt, inside, inside_a_tool, is_inside, needs_journal, without_journal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from midturn.framework import Request
    from midturn.journal.divergence import Divergence
    from midturn.journal.order import Completion
    from midturn.journal.recorded import Delivery, Entry, Recorded
    from midturn.lease.ledger import Ledger
    from midturn.questions import Question
    from midturn.record.packing import Archive
    from midturn.record.rows import Stage, What
    from midturn.redaction import Redaction, Spoken
    from midturn.stopping import Stop

_KINDS: dict[str, Spoken] = {"model": "model", "human": "human", "memory": "memory"}


class Suspended(Resting):
    """The turn cannot continue before a human has answered."""

    def __init__(self, waiting: Waiting, rows: Sequence[tuple[CallRow, dict[str, Any]]]) -> None:
        super().__init__("the turn waits for an answer")
        self.waiting = waiting
        self.rows = rows
        """The questions that are not recorded yet, each with its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """A question that somebody waits for in this attempt."""

    question: Question
    row: CallRow
    facts: dict[str, Any]
    answered: asyncio.Future[Completion]


class Journal:
    """The calls of a running turn."""

    recording = True

    def __init__(
        self,
        ledger: Ledger,
        archive: Archive,
        recorded: Recorded,
        *,
        delivery: Delivery,
        halt: Stop,
        divergence: Divergence,
        redaction: Redaction | None = None,
    ) -> None:
        self._ledger = ledger
        self._archive = archive
        self._recorded = recorded
        self._delivery = delivery
        self._divergence = divergence
        self.redaction = redaction
        if redaction is not None:
            for known in recorded.entries:
                redaction.learn(known.value)
        self._started = time.monotonic()
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._order = Order(recorded.entries, self._rest)
        self._asking: dict[str, _Asking] = {}
        self._rested = 0.0
        """The time when the turn began to rest."""
        self._appender = Appender(ledger, archive, self._order, halt)
        self._seen: dict[str, list[Any]] = {}
        self._free: dict[tuple[str, str, str], list[int]] = {}
        self._announced: Counter[str] = Counter()
        """The calls that models have asked for in this attempt. The answers of the models are recorded, so these calls
        need no record of their own when they begin."""

    @property
    def replaying(self) -> bool:
        return self._order.replaying

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        if is_inside(self):
            if request.approval:
                await self._appender.stop(inside_a_tool(request, self._ledger.session))
            return await make(request.arguments)
        await self._order.gate.enter()
        self._appender.check_open()
        request = request if self.redaction is None else await self._as_recorded(request)
        nth = self._count(request)
        self._divergence.count(request)
        entry = self._recorded.find(request.path, request.what, request.key, nth) or self._divergence.kept(request)
        if entry is not None:
            await self._claim(entry)
            return Answer(value=entry.value, spent=entry.row.spent)
        if (error := await self._divergence.check(request, nth, self._order.gate)) is not None:
            await self._appender.stop(error)
        if request.approval:
            arguments, refusal = await self._approval(request, nth)
            if refusal is not None:
                return await self._complete(request, nth, _answer_of_text(request, refusal, failed=True))
            request = replace(request, arguments=arguments)
        if request.effect == "unsafe":
            known = await self._settle(request, nth)
            if known is not None:
                return await self._complete(request, nth, known)
        if request.effect == "transactional":
            return await self._transact(request, nth, make)
        return await self._make(request, nth, make)

    async def enter(self) -> None:
        await self._order.gate.enter()

    async def quiet(self) -> None:
        await self._order.gate.quiet()

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        self._appender.check_open()
        request = request if self.redaction is None else await self._as_recorded(request)
        return await self._approval(request, self._count(request))

    async def _approval(self, request: Request, nth: int) -> tuple[Any, str | None]:
        decision = await self._question(request, "approval", nth, may(_shown(request)))
        if decision["decision"] == "deny":
            return None, denied(decision["text"])
        return request.changed(decision["arguments"]), None

    async def fail(self, error: Exception) -> NoReturn:
        await self._appender.stop(error)

    async def ask(self, request: Request, question: str) -> str:
        self._appender.check_open()
        if self.redaction is not None:
            request = await self._as_recorded(replace(request, question=question))
            question = request.question
        return str((await self._question(request, "human", self._count(request), question))["text"])

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        self._appender.check_open()
        nth = self._counts[path, "tools", ""]
        self._counts[path, "tools", ""] += 1
        for first, known in reversed(self._recorded.seen.get(path, ())):
            if self.replaying and first <= nth:
                return list(known)
        tools = await see()
        if self._seen.get(path) != tools:
            self._seen[path] = tools
            value = self._archive.inline({"tools": tools}, path)
            row = CallRow(
                path=path,
                what="tools",
                key="",
                nth=nth,
                spent=self._spent(),
                at=now(),
                attempt=self._ledger.progress.attempts,
                value=value,
            )
            self._appender.append_later(row)
        return tools

    def finish(self) -> list[str]:
        """Check that the turn has used all recorded calls; return notes about what has changed.

        Raises:
            ReplayDiverged: the turn has not used a recorded call that had an effect.
        """
        return self._divergence.finish()

    async def close(self) -> None:
        """Make no more calls: finish the current write, and cancel the waiting callers."""
        await self._order.close()
        await self._appender.close()

    # One call.

    def _count(self, request: Request) -> int:
        """Count a call, and return the number of equal calls before it."""
        same = (request.path, request.what, request.key)
        if free := self._free.get(same):
            return heappop(free)
        self._counts[same] += 1
        return self._counts[same] - 1

    def _give_back(self, request: Request, nth: int) -> None:
        """Count a call as not made, because it failed: when the turn runs again, its number must be free."""
        heappush(self._free.setdefault((request.path, request.what, request.key), []), nth)

    async def _claim(self, entry: Entry) -> None:
        self._recorded.claim(entry)
        await self._order.take(entry)

    async def _settle(self, request: Request, nth: int) -> Answer | None:
        """Return the answer of a call that was begun and has no recorded end; ``None`` if the call has to be made."""
        begun = self._recorded.begun(request.key, nth, announced=not request.approval)
        if begun and request.reconcile is not None:
            with self._running():
                try:
                    found = request.reconcile(self._facts(request, nth))
                    found = await found if isawaitable(found) else found
                except Exception as error:  # noqa: BLE001 - a user's function: the turn fails with its error
                    await self._appender.stop(error)
            dump = getattr(found, "model_dump_json", found.__str__)
            return None if found is None else _answer_of_text(request, str(dump()), failed=False)
        for attempt in range(begun):
            decision = await self._question(request, "doubt", nth, did(_shown(request)), attempt)
            match decision["decision"]:
                case "done":
                    return _answer_of_text(request, decision["text"], failed=False)
                case "fail":
                    return _answer_of_text(request, FAILED, failed=True)
                case _:
                    continue
        return None

    async def _make(self, request: Request, nth: int, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        begun = self._recorded.begun(request.key, nth, announced=True)
        with self._running():
            if request.effect == "unsafe" and (begun or request.approval or not self._announced[request.key] > nth):
                await self._appender.append(self._row(request, nth, stage="started"))
            try:
                with inside(self._key(request, nth), calls=self):
                    answer = await make(request.arguments)
            except BaseException:
                self._give_back(request, nth)
                raise
        return await self._complete(request, nth, answer)

    async def _transact(self, request: Request, nth: int, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """Make a call in a transaction of the store that also records it: both happen, or neither does."""
        answer = completion = None
        with self._running():
            try:
                async with self._appender.transaction() as transaction:
                    with inside(self._key(request, nth), transaction, calls=self):
                        answer = await self._while_open(make(request.arguments))
                    if not answer.failed:  # else the transaction is rolled back
                        if self.redaction is not None:
                            answer = await redacted(answer, request, self.redaction)
                        row = self._row(request, nth, value=answer.value)
                        completion = await self._appender.commit(transaction, row)
            except MidturnError as error:
                await self._appender.stop(error)
            except BaseException as error:
                if completion is not None:
                    self._order.leave(completion)
                if answer is None or not isinstance(error, Exception):
                    raise
                failure = f"{type(error).__name__}: {error}"
                answer = _answer_of_text(request, failure, failed=True)  # the database undid it
        if completion is None:
            return await self._complete(request, nth, answer)
        await self._order.take(completion)
        return answer

    async def _while_open(self, work: Awaitable[Answer]) -> Answer:
        """Return the result of work in a transaction; stop waiting for it when the turn ends."""
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._appender.closing}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            self._appender.check_open()
            return task.result()
        finally:
            task.cancel()

    async def _complete(self, request: Request, nth: int, answer: Answer) -> Answer:
        """Record the answer of a call, and wait until the answer is the next in the order."""
        with self._running():
            await self._order.gate.enter()  # the calls may have ended together, as they began
            try:
                if self.redaction is not None:
                    answer = await redacted(answer, request, self.redaction)
                row = self._row(request, nth, value=answer.value, starts=answer.starts)
            except MidturnError as error:  # the answer cannot be stored, or redacted
                await self._appender.stop(error)
            completion = await self._appender.append(row, answer.usage)
        self._announced.update(start.partition(" ")[0] for start in answer.starts)
        await self._order.take(completion)
        return answer

    async def _question(self, request: Request, what: What, nth: int, text: str, attempt: int = 0) -> dict[str, Any]:
        """Return the decision of a human. Without a decision, this does not return."""
        key = f"{request.key}#{attempt}" if attempt else request.key
        if (entry := self._recorded.find(request.path, what, key, nth)) is not None:
            await self._claim(entry)
            return entry.value
        if is_inside(self):
            await self._appender.stop(inside_a_tool(request, self._ledger.session))
        if what == "human" and (error := self._divergence.asked_anew(request, text)) is not None:
            await self._appender.stop(error)
        # The text shows other arguments. A copy: the caller gets the question, and the call may continue later.
        arguments = deepcopy(request.arguments) if is_object(request.arguments) else None
        facts: dict[str, Any] = {"question": text, "agent": request.who, "arguments": arguments}
        if what == "approval" and request.schema is not None:
            facts["schema"] = request.schema
        try:
            row = replace(self._row(request, nth, stage="asked", value=facts), what=what, key=key, effect="read")
        except MidturnError as error:  # the question cannot be stored
            await self._appender.stop(error)
        question, answered = (
            question_of(row, facts, name_of(self._ledger), self._delivery.born),
            self._appender.waiter(),
        )
        self._asking[question.id] = _Asking(question=question, row=row, facts=facts, answered=answered)
        self._order.ask()
        completion = await self._appender.answered(answered)
        await self._order.take(completion)
        value = self._recorded.demand(request.path, what, key, nth).value
        if self.redaction is not None:
            self.redaction.learn(value)
        return value

    def _rest(self) -> None:
        """Suspend the turn if it has questions. The order calls this when no call runs any more."""
        if self._asking:
            asking, known = self._asking.values(), self._recorded.questions
            new = [(each.row, each.facts) for each in asking if each.question.id not in known]
            self._rested = time.monotonic()
            self._appender.halt(Suspended(Waiting(tuple(each.question for each in asking)), new))

    @property
    def is_still(self) -> bool:
        """Return whether everybody who has asked still waits for the answer."""
        return not any(each.answered.done() for each in self._asking.values())

    def proceed(self, halt: Stop) -> float:
        """Continue after a rest; return the seconds that the turn has run, without the rest."""
        self._started += time.monotonic() - self._rested
        self._appender.proceed(halt)
        return self._spent()

    def answer(self, question: str) -> None:
        """Give the recorded answer to a question to the call that waits for it."""
        asking = self._asking.pop(question)
        row = asking.row
        self._recorded.claim(self._recorded.demand(row.path, row.what, row.key, row.nth))
        asking.answered.set_result(self._order.add())
        self._order.ask()  # other questions may still be open

    # The rows to write.

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
            at=now(),
            attempt=self._ledger.progress.attempts,
            name=request.name,
            about=readable(request.arguments, brief=True) if request.name and stage == "done" else "",
            effect=request.effect,
            value=None if value is None else self._archive.inline(value, f"{request.path}.{request.what}"),
            starts=tuple(starts),
            instead=self._divergence.instead(request.path) if request.what == "model" else (),
        )

    async def _as_recorded(self, request: Request) -> Request:
        """Return a call as it is shown, recorded and made."""
        if self.redaction is None:
            return request
        try:
            with self._running():
                return await as_recorded(request, self.redaction)
        except MidturnError as error:
            await self._appender.stop(error)

    # The rest.

    @contextmanager
    def _running(self) -> Generator[None]:
        self._order.begin()
        try:
            yield
        finally:
            self._order.end()

    def _spent(self) -> float:
        return round(self._recorded.spent + time.monotonic() - self._started, 3)

    def _key(self, request: Request, nth: int) -> str:
        return call_key_of(self._ledger, self._delivery, request.path, request.key, nth)

    def _facts(self, request: Request, nth: int) -> CallInDoubt:
        return CallInDoubt(
            session=self._ledger.session,
            turn=self._ledger.progress.turn,
            agent=request.who,
            tool=request.name,
            arguments=request.arguments or {},
            key=self._key(request, nth),
        )


class Unrecorded:
    """The calls of a turn that records none of them, for ``durability="turn"``.

    Every call is made, with a key that is the same when the turn runs again. A call that needs a journal is rejected:
    one that must not be repeated, that works in a transaction, or that needs approval.
    """

    recording = False

    def __init__(self, ledger: Ledger, *, delivery: Delivery, halt: Stop, redaction: Redaction | None = None) -> None:
        self.redaction = redaction
        self._ledger = ledger
        self._delivery = delivery
        self._halt = halt
        self._counts: Counter[tuple[str, str]] = Counter()
        self._gate = Gate()
        self._ended: asyncio.Future[NoReturn] = asyncio.get_running_loop().create_future()

    @property
    def replaying(self) -> bool:
        return False

    async def call(self, request: Request, make: Callable[[Any], Awaitable[Answer]]) -> Answer:
        if is_inside(self) and not request.approval:
            return await make(request.arguments)
        if request.what in ("tool", "code"):
            session = self._ledger.session
            error = needs_journal(request.name, request.effect, approval=request.approval, session=session)
            if error is not None:
                await self.fail(error)
        nth = self._counts[request.path, request.key]
        self._counts[request.path, request.key] += 1
        await self.enter()
        with inside(call_key_of(self._ledger, self._delivery, request.path, request.key, nth), calls=self):
            answer = await make(request.arguments)
        if self.redaction is not None:
            try:
                answer = await redacted(answer, request, self.redaction)
            except MidturnError as error:
                await self.fail(error)
        prompts, completions = self._ledger.progress.paid
        paid = prompts + answer.usage[0], completions + answer.usage[1]
        self._ledger.progress = replace(self._ledger.progress, paid=paid)  # the next write stores it
        return answer

    async def enter(self) -> None:
        await self._gate.enter()

    async def quiet(self) -> None:
        await self._gate.quiet()

    async def approve(self, request: Request) -> tuple[Any, str | None]:
        return await self._refuse(request.name)

    async def ask(self, request: Request, question: str) -> str:
        _ = question
        return await self._refuse(request.path)

    async def look(self, path: str, see: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        _ = path
        return await see()

    def finish(self) -> list[str]:
        """Return no notes: there is no record of an earlier attempt."""
        return []

    async def close(self) -> None:
        """Cancel the waiting callers."""
        self._ended.cancel()

    async def fail(self, error: Exception) -> NoReturn:
        fail(self._halt, error)  # not raised: the framework would turn it into another error
        await self._ended
        raise AssertionError

    async def _refuse(self, path: str) -> NoReturn:
        await self.fail(without_journal("needs a journal", path, self._ledger.session))


async def as_recorded(request: Request, redaction: Redaction) -> Request:
    """Return a call as it is shown, recorded and made. Arguments that a model gave were redacted in its answer.

    Raises:
        RedactionFailed: the function of the blueprint failed.
    """
    if not request.arguments and not request.question:
        return request
    where = Where(kind="agent", agent=request.who, tool=request.name)
    [arguments, question] = await redaction.own(
        lambda clean: [texts_in(request.arguments, clean), text_in(request.question, clean)], where
    )
    if question != request.question:
        return replace(request, question=question, key=digest(question))
    if arguments != request.arguments:
        return replace(request, arguments=arguments, key=digest(request.agent, request.name, arguments))
    return request


async def redacted(answer: Answer, request: Request, redaction: Redaction) -> Answer:
    """Return the answer of a call as it is recorded, which is what the agent gets.

    Raises:
        RedactionFailed: the function of the blueprint failed.
    """
    where = Where(kind=_KINDS.get(request.what, "tool"), agent=request.who, tool=request.name)
    value = await redaction.given(lambda clean: request.texts(answer.value, clean), where)
    if value == answer.value:
        return answer
    found = replace(answer, value=value, native=None)  # the agent gets it as it does from the record
    return found if request.redacted is None else await request.redacted(found)


def _shown(request: Request) -> str:
    return readable_call(request.name, request.arguments)


def _answer_of_text(request: Request, text: str, *, failed: bool) -> Answer:
    if request.result_of_text is None:
        raise AssertionError(f"a call of the kind {request.what!r} is never in doubt")
    return Answer(value=request.result_of_text(text, failed))
