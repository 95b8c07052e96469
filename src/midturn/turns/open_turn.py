"""The open turn of a session: its input, its calls, and what it asks of people."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

from midturn.errors import Conflict, InDoubt, MigrationFailed, SessionBusy, StateInvalid
from midturn.framework import EventT_co, Outcome, ResultT_co
from midturn.history.checkpoints import messages_of, read_bodies
from midturn.journal import recorded
from midturn.journal.recorded import Recorded
from midturn.lease.ledger import holder
from midturn.questions import Waiting, read_answer
from midturn.record.head import Kind, Row
from midturn.record.rows import DecisionRow, FailureRow, TurnRow, encode_record, now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from midturn.framework import Framework
    from midturn.lease.ledger import Ledger
    from midturn.questions import Question
    from midturn.record.codec import Json
    from midturn.record.head import Head
    from midturn.record.packing import Archive
    from midturn.record.rows import CallRow, Opened, Progress
    from midturn.turns.instance import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTurn:
    """A turn that was accepted and has no result yet."""

    task: list[Json] | None = None
    born: float = 0.0
    """When its input was accepted."""
    version: int = 1
    """The latest version of the blueprint that has worked on it."""
    fingerprint: Json = None
    """How the agents were built that began it, if no checkpoint says so."""
    recorded: Recorded
    """The calls that were made for it before."""


async def read_open_turn(ledger: Ledger) -> OpenTurn:
    """Read the open turn; the head was read before.

    Raises:
        StateInvalid: it is damaged.
    """
    progress = ledger.progress
    row = await ledger.read(Kind.TURN, TurnRow, progress.turn)
    if row is None:
        raise StateInvalid("is missing", path=ledger.name(Kind.TURN, progress.turn), session=ledger.session)
    bodies = await read_bodies(ledger, progress.bodies)
    calls = await recorded.read(ledger, progress.journal, progress.calls, bodies)
    built = None if row.fingerprint is None else bodies.message(row.fingerprint, "fingerprint")
    return OpenTurn(
        task=messages_of(bodies, row.task),
        born=row.at,
        version=max(row.version, progress.version),
        fingerprint=built,
        recorded=calls,
    )


def calls_made(progress: Progress) -> Sequence[int]:
    """Return the numbers of the last turn's first call and of the one after its last; nothing if there is none."""
    return (progress.journal, progress.calls) if progress.journal < progress.calls else ()


async def read_questions(ledger: Ledger) -> tuple[Question, ...]:
    """Return what the open turn waits for, oldest first; nothing if it does not wait."""
    if ledger.progress.open != "waiting":
        return ()
    return tuple(question for question, _ in (await read_open_turn(ledger)).recorded.questions.values())


async def check_open_turn(turn: OpenTurn, instance: Instance[Any, Any]) -> None:
    """Check that what is built here can continue an open turn.

    Raises:
        UnknownVersion: a newer version of the blueprint has begun it.
        MigrationFailed: a migration takes away the agents or tools that it has used.
        Drifted: the policy refuses what has changed since it was begun.
    """
    instance.check_version(turn.version)
    used, touched = turn.recorded.names(), instance.touched(turn.version)
    if gone := sorted(used if touched is None else used & touched):
        raise MigrationFailed(
            f"session {instance.session!r} has an open turn that has used {', '.join(gone)}, and a migration to "
            f"version {instance.version} changes that. Nothing was changed: finish the turn with version "
            f"{turn.version}, which has worked on it, or give it up",
            session=instance.session,
            versions=(turn.version, instance.version),
            hint="Give the turn up: discard().",
        )
    if turn.version == instance.version:
        await instance.compare(turn.fingerprint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """An open question, and what somebody decided."""

    turn: OpenTurn
    head: Head | None
    """The head that was seen when the turn was read."""
    question: Question
    row: CallRow
    """The row that asks."""
    last: bool
    """Nothing else is asked."""
    answer: str
    arguments: Mapping[str, Json] | None
    """What somebody changed in the arguments of the call."""
    value: dict[str, Any]
    """The decision as the journal records it."""

    def record(self, progress: Progress, archive: Archive) -> tuple[Progress, list[Row]]:
        """Add the decision to what the turn has recorded; return its rows, and the progress with them."""
        at, asked = now(), self.question
        value = archive.inline(self.value, "answer")
        row = replace(self.row, stage="done", value=value, at=at, attempt=progress.attempts)
        self.turn.recorded.add(row, self.value)
        decision = DecisionRow(
            turn=progress.turn,
            question=asked.question,
            kind=asked.kind,
            agent=asked.agent,
            tool=asked.tool or "",
            arguments=None if asked.arguments is None else dict(asked.arguments),
            answer=self.answer,
            changed=None if self.arguments is None else dict(self.arguments),
            at=at,
        )
        rows = [
            Row(kind=Kind.CALL, n=progress.calls, data=encode_record(row)),
            Row(kind=Kind.DECISION, n=progress.decisions, data=encode_record(decision)),
        ]
        return replace(progress, calls=progress.calls + 1, decisions=progress.decisions + 1), rows


class OpenQuestions(Generic[EventT_co, ResultT_co]):
    """What the open turn asks, and what is answered. The session's lease is free or held when it is used."""

    def __init__(
        self,
        ledger: Ledger,
        instance: Instance[EventT_co, ResultT_co],
        framework: Framework[EventT_co, ResultT_co],
    ) -> None:
        self._ledger = ledger
        self._instance = instance
        self._framework = framework

    async def result(self, *, own: bool) -> ResultT_co:
        """Return the result of the open turn, which waits, if that is the caller's ``own``.

        Raises:
            InDoubt: it is not, and the open turn waits for somebody to say what became of a call.
            SessionBusy: it is not, and the open turn waits for another answer.
        """
        progress, session = self._ledger.progress, self._ledger.session
        questions = await read_questions(self._ledger)
        waiting = Waiting(questions) if questions else None
        if own or waiting is None:
            outcome = Outcome(messages=[])
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
        raise SessionBusy(text, session=session, owner="a human", hint=hint)

    async def decide(self, question: str | None, answer: str, arguments: Mapping[str, Json] | None) -> Decided:
        """Return what an answer decides: to the question with this id, or to the only one.

        Raises:
            Conflict: the question is not asked, or not any more.
            StateInvalid: this cannot be answered to it, or there are several questions.
        """
        session, waits = self._ledger.session, self._ledger.progress.open == "waiting"
        turn = await read_open_turn(self._ledger) if waits else OpenTurn(recorded=Recorded())
        asked = turn.recorded.questions
        if question is None and len(asked) > 1:
            listed = "\n".join(f"{id_}: {each.question}" for id_, (each, _) in asked.items())
            raise StateInvalid(
                f"several are open; name one of these:\n{listed}",
                path="question",
                session=session,
                hint="Name it by its id: answer(..., question=...).",
            )
        found = next(iter(asked.values()), None) if question is None else asked.get(question)
        if found is None:
            which = "no answer" if question is None else f"no answer to question {question!r}"
            then, hint = "it may have been answered", ""
            if self._ledger.progress.open == "running":
                runs = holder(self._ledger.head) is not None
                then = "its turn runs now" if runs else "its turn can continue"
                hint = "" if runs else "resume() continues the turn."
            raise Conflict(f"session {session!r} waits for {which}; {then}", session=session, hint=hint)
        return Decided(
            turn=turn,
            head=self._ledger.head,
            question=found[0],
            row=found[1],
            last=len(asked) == 1,
            answer=answer,
            arguments=arguments,
            value=read_answer(found[0], answer, arguments),
        )

    async def record(self, decided: Decided) -> None:
        """Record a decision without agents. The turn can continue when nothing else is asked.

        Raises:
            Conflict: another was quicker.
        """
        await self._instance.read(self._ledger)
        archive = self._instance.archive
        progress, rows = decided.record(self._ledger.progress, archive)
        status: Opened = "running" if decided.last else "waiting"
        with self._ledger.storing(archive) as bodies:
            await self._ledger.write(
                status=status,
                progress=replace(progress, bodies=archive.bodies, open=status),
                rows=[*bodies, *rows],
                release=True,
            )

    async def discard(self) -> None:
        """Give the open turn up for good."""
        progress = self._ledger.progress
        failure = FailureRow(
            turn=progress.turn,
            status="cancelled",
            error="discarded",
            at=now(),
            calls=calls_made(progress),
            attempts=progress.attempts,
        )
        await self._ledger.write(
            status="idle",
            progress=replace(progress, failures=progress.failures + 1, open=None),
            rows=[Row(kind=Kind.FAILURE, n=progress.failures, data=encode_record(failure))],
            release=True,
        )
