"""The open turn of a session: its input, its calls, and its questions to people."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

from midturn.errors import Conflict, InDoubt, InvalidArgument, MigrationFailed, SessionBusy, StateInvalid
from midturn.framework import EventT_co, Outcome, ResultT_co
from midturn.history.checkpoints import input_of, read_bodies
from midturn.journal import recorded
from midturn.journal.recorded import Delivery
from midturn.lease.ledger import holder
from midturn.questions import Waiting, read_answer, words_of
from midturn.record.head import Kind, Row
from midturn.record.rows import CheckpointRow, DecisionRow, FailureRow, TurnRow, encode_record, given_up, now
from midturn.redaction import Where, text_in, texts_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from midturn.framework import Framework, Input
    from midturn.journal.recorded import Recorded
    from midturn.lease.ledger import Ledger
    from midturn.questions import Question
    from midturn.record import rows
    from midturn.record.codec import Json
    from midturn.record.head import Head
    from midturn.record.packing import Archive
    from midturn.record.rows import CallRow, Opened, Progress
    from midturn.turns.instance import Instance
    from midturn.turns.resting import RestingTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurn:
    """A turn that was accepted and has no result yet."""

    given: Input
    delivery: Delivery
    version: int = 1
    """The latest version of the blueprint that has worked on the turn."""
    fingerprint: Json = None
    """The fingerprint of the agents that began the turn, if the session has no checkpoint yet."""
    notes: Sequence[str] = ()
    """The notes that the turn began with."""
    recorded: Recorded
    """The calls that earlier attempts, or earlier turns with the same key, have recorded."""
    resting: RestingTurn | None = None
    """The turn as it stands in this process, if it continues without a replay."""
    was_kept: bool = False
    """True if the turn rests in this process: ``recorded`` lacks the calls that it has made here."""


async def read_open_turn(ledger: Ledger) -> OpenTurn:
    """Read the open turn. The ledger must have read the head before.

    Raises:
        StateInvalid: the record of the turn is missing or damaged.
    """
    progress = ledger.progress
    row = await ledger.demand(Kind.TURN, TurnRow, progress.turn)
    bodies = await read_bodies(ledger, progress.bodies)
    calls = await recorded.read(ledger, progress.journal, progress.calls, bodies, born=row.at)
    built = None if row.fingerprint is None else bodies.message(row.fingerprint, "fingerprint")
    return OpenTurn(
        given=input_of(ledger.session, progress.turn, row, bodies),
        delivery=Delivery(key=row.key, born=row.at),
        version=max(row.version, progress.version),
        fingerprint=built,
        notes=row.notes,
        recorded=calls,
    )


def calls_made(progress: Progress) -> Sequence[int]:
    """Return the start and the stop of the last turn's calls; an empty sequence if the turn has no calls."""
    return (progress.journal, progress.calls) if progress.journal < progress.calls else ()


def about_turn(progress: Progress, kind: rows.Decided, question: str, answer: str, by: str) -> Row:
    """Return the row that records a decision about the open turn itself."""
    decision = DecisionRow(turn=progress.turn, kind=kind, question=question, answer=answer, by=by, at=now())
    return Row(kind=Kind.DECISION, n=progress.decisions, data=encode_record(decision))


async def keep_calls(ledger: Ledger) -> list[Row]:
    """Return the row that keeps the calls of the open turn for its key, because the next write gives the turn up."""
    progress = ledger.progress
    row = await ledger.read(Kind.TURN, TurnRow, progress.turn) if progress.open and calls_made(progress) else None
    if row is None or row.key is None:
        return []
    number, known = await ledger.key(row.key)
    if known is None:
        raise StateInvalid("is missing", path=f"key {row.key!r}", session=ledger.session)
    calls = await recorded.read_rows(ledger, progress.journal, progress.calls)
    return [Row(kind=Kind.KEY, n=number, data=encode_record(given_up(known, calls)))]


async def give_up(ledger: Ledger, by: str) -> tuple[Progress, list[Row]]:
    """Return the progress without the open turn, which ``by`` gives up, and the rows that record that."""
    progress = ledger.progress
    kept = await keep_calls(ledger)
    decision = about_turn(progress, "discard", f"Give up turn {progress.turn}?", "discard", by)
    # The turn may have brought another blueprint or version. The session goes back to those of its checkpoint.
    before = await ledger.read(Kind.CHECKPOINT, CheckpointRow, progress.checkpoint)
    blueprint, version = (before.blueprint, before.version) if before is not None else ("", 1)
    failure = FailureRow(
        turn=progress.turn,
        status="cancelled",
        error="discarded",
        at=now(),
        calls=calls_made(progress),
        attempts=progress.attempts,
        usage=progress.paid,
    )
    progress = replace(
        progress,
        failures=progress.failures + 1,
        decisions=progress.decisions + 1,
        open=None,
        answers=0,
        blueprint=blueprint,
        version=version,
    )
    return progress, [Row(kind=Kind.FAILURE, n=ledger.progress.failures, data=encode_record(failure)), decision, *kept]


async def read_questions(ledger: Ledger) -> tuple[Question, ...]:
    """Return the questions of the open turn, oldest first; an empty tuple if the turn does not wait."""
    return _questions(await read_open_turn(ledger)) if ledger.progress.open == "waiting" else ()


def _questions(turn: OpenTurn) -> tuple[Question, ...]:
    return tuple(question for question, _ in turn.recorded.questions.values())


async def check_open_turn(turn: OpenTurn, instance: Instance[Any, Any]) -> None:
    """Check that this instance can continue an open turn.

    Raises:
        UnknownVersion: a newer version of the blueprint has worked on the turn.
        MigrationFailed: a migration changes agents or tools that the turn has used.
        Drifted: the policy rejects a change in the agents since the turn began.
    """
    instance.check_version(turn.version)
    used, touched = turn.recorded.names(), instance.touched(turn.version)
    if gone := sorted(used if touched is None else used & touched):
        raise MigrationFailed(
            f"the open turn of session {instance.session!r} has used {', '.join(gone)}, and a migration to version "
            f"{instance.version} changes that. Nothing was changed: finish the turn with version {turn.version}, "
            "which has worked on it, or give the turn up",
            session=instance.session,
            versions=(turn.version, instance.version),
            hint="Give the turn up: discard().",
        )
    if turn.version == instance.version:
        await instance.compare(turn.fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """An open question and its decision."""

    turn: OpenTurn
    head: Head | None
    """The head from which the turn was read."""
    question: Question
    row: CallRow
    """The row that asks the question."""
    last: bool
    """True if this is the only open question."""
    answer: str
    arguments: Mapping[str, Json] | None
    """The changes to the arguments of the call."""
    by: str
    """The person who decided; empty if the caller does not say."""
    value: dict[str, Any]
    """The decision as the journal records it."""
    key: Row | None = None
    """The record of the key with which the answer was delivered."""

    def record(self, progress: Progress, archive: Archive) -> tuple[Progress, list[Row], CallRow]:
        """Return the progress with the decision, the rows that record it, and the call that it completes."""
        at, asked = now(), self.question
        value = archive.inline(self.value, "answer")
        row = replace(self.row, stage="done", value=value, at=at, attempt=progress.attempts)
        decision = DecisionRow(
            turn=progress.turn,
            question=asked.question,
            kind=asked.kind,
            agent=asked.agent,
            tool=asked.tool or "",
            arguments=None if asked.arguments is None else dict(asked.arguments),
            answer=self.answer,
            changed=None if self.arguments is None else dict(self.arguments),
            by=self.by,
            at=at,
        )
        rows = [
            Row(kind=Kind.CALL, n=progress.calls, data=encode_record(row)),
            Row(kind=Kind.DECISION, n=progress.decisions, data=encode_record(decision)),
        ]
        if self.key is not None:
            rows.append(self.key)
        progress = replace(
            progress, calls=progress.calls + 1, decisions=progress.decisions + 1, answers=progress.answers + 1
        )
        return progress, rows, row


class OpenQuestions(Generic[EventT_co, ResultT_co]):
    """The questions of the open turn, and their answers."""

    def __init__(
        self,
        ledger: Ledger,
        instance: Instance[EventT_co, ResultT_co],
        framework: Framework[EventT_co, ResultT_co],
        known: Callable[[], OpenTurn | None],
    ) -> None:
        """Answer questions of the open turn, which ``known`` returns if this process has it at hand."""
        self._ledger = ledger
        self._instance = instance
        self._framework = framework
        self._known = known

    async def result(self, *, own: bool, said: Callable[[], Awaitable[list[Any]]] | None = None) -> ResultT_co:
        """Return the result of the open turn, which waits, if the turn is the caller's ``own``.

        ``said`` returns the events so far.

        Raises:
            InDoubt: the turn is not the caller's own, and waits for a decision about a call in doubt.
            SessionBusy: the turn is not the caller's own, and waits for another answer.
        """
        session = self._ledger.session
        questions = await self._open_questions()
        progress = self._ledger.progress
        waiting = Waiting(questions) if questions else None
        if own or waiting is None:
            outcome = Outcome(messages=[], native=None if said is None else await said())
            return self._framework.result(
                None, turn=progress.turn, checkpoint=progress.checkpoint, outcome=outcome, waiting=waiting
            )
        text = (
            f"turn {progress.turn} of session {session!r} waits for an answer to: {waiting.question}\n"
            "Your task was not accepted."
        )
        hint = "answer() continues that turn, discard() gives it up."
        if waiting.kind == "doubt":
            raise InDoubt(
                text,
                session=session,
                question=waiting.id,
                tool=waiting.tool or "",
                arguments=waiting.arguments,
                hint=hint,
            )
        raise SessionBusy(text, session=session, owner=SessionBusy.A_HUMAN, hint=hint)

    async def _open_questions(self) -> tuple[Question, ...]:
        known = self._known()
        if known is None:
            return await self._ledger.steady(lambda: read_questions(self._ledger))
        return deepcopy(_questions(known))  # the caller gets them

    async def hear(self, words: str, by: str, key: Row | None) -> Decided:
        """Return the decision that somebody's words make about the open question, if it asks for words.

        Raises:
            InDoubt: the turn waits for a decision about a call in doubt.
            SessionBusy: the turn waits for an approval, or several people are asked.
        """
        questions = await self._open_questions()
        human = [question for question in questions if question.kind == "human"]
        if len(human) != 1:
            await self.result(own=False)
        return replace(await self.decide(human[0].id, words, None, by), key=key)

    async def decide(self, question: str | None, answer: str, arguments: Mapping[str, Json] | None, by: str) -> Decided:
        """Return the decision that an answer makes about the question with this id, or about the only question.

        Raises:
            Conflict: the question was never asked, or is no longer open.
            InvalidArgument: the question does not allow this answer, or several questions are open.
        """
        if question is not None and not isinstance(question, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"must be the id of a question, not {type(question).__name__}", path="question")
        return await self._ledger.steady(lambda: self._decide(question, answer, arguments, by))

    async def _decide(
        self, question: str | None, answer: str, arguments: Mapping[str, Json] | None, by: str
    ) -> Decided:
        session = self._ledger.session
        if self._ledger.progress.open != "waiting":
            raise self._not_asked(question)
        turn = self._known() or await read_open_turn(self._ledger)
        asked = turn.recorded.questions
        if question is None and len(asked) > 1:
            listed = "\n".join(f"{id_}: {each.question}" for id_, (each, _) in asked.items())
            raise InvalidArgument(
                f"several questions are open; name one of these:\n{listed}",
                path="question",
                session=session,
                hint="Name it by its id: answer(..., question=...).",
            )
        found = next(iter(asked.values()), None) if question is None else asked.get(question)
        if found is None:
            raise self._not_asked(question)
        if self._ledger.progress.redacted or self._instance.redaction is not None:
            answer, arguments = await self._redacted(found[0], answer, arguments)
        return Decided(
            turn=turn,
            head=self._ledger.head,
            question=found[0],
            row=found[1],
            last=len(asked) == 1,
            answer=answer,
            arguments=arguments,
            by=by,
            value=deepcopy(read_answer(found[0], answer, arguments)),  # the arguments are the caller's
        )

    async def _redacted(
        self, question: Question, answer: str, arguments: Mapping[str, Json] | None
    ) -> tuple[str, Mapping[str, Json] | None]:
        """Return an answer as it is recorded, which is what the turn gets. Words that decide are no texts.

        Raises:
            InvalidArgument: the texts of the session are redacted, and there is no function here that could do it.
        """
        word, text = words_of(question, answer)
        if not (text or arguments):
            return answer, arguments
        self._instance.check_redacts(self._ledger)
        redaction = self._instance.redaction
        if redaction is None or not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            return answer, arguments
        where = Where(kind="human", agent=question.agent, tool=question.tool or "")
        said = await redaction.given(lambda clean: text_in(text, clean), where)
        changed = await redaction.given(lambda clean: texts_in(arguments, clean), where)
        return word + said, changed

    def _not_asked(self, question: str | None) -> Conflict:
        """Return the error for an answer that nobody waits for."""
        session = self._ledger.session
        which = "no answer" if question is None else f"no answer to question {question!r}"
        then, hint = "it may have been answered", ""
        if self._ledger.progress.open == "running":
            runs = holder(self._ledger.head) is not None
            then = "its turn runs now" if runs else "its turn can continue"
            hint = "" if runs else "resume() continues the turn."
        elif self._ledger.progress.open in ("failed", "cancelled"):
            then = "its turn has ended without a result"
            hint = "resume() tries the turn again."
        return Conflict(f"session {session!r} waits for {which}; {then}", session=session, hint=hint)

    async def record(self, decided: Decided) -> None:
        """Record a decision without running the turn. The turn can continue when no other question is open.

        Raises:
            Conflict: another worker wrote the session first.
        """
        await self._instance.read(self._ledger)
        archive = self._instance.archive
        progress, rows, _ = decided.record(self._ledger.progress, archive)
        status: Opened = "running" if decided.last else "waiting"
        with self._ledger.storing(archive) as bodies:
            await self._ledger.write(
                status=status,
                progress=replace(progress, bodies=archive.bodies, open=status),
                rows=[*bodies, *rows],
                release=True,
            )

    async def discard(self, by: str) -> None:
        """Give up the open turn for good, as ``by`` decided."""
        progress, rows = await give_up(self._ledger, by)
        await self._ledger.write(status="idle", progress=progress, rows=rows, release=True)
