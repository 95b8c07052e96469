"""The acts of people on a session: save, reset, rewind, edit, fork and delete it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Self

from midturn.errors import Conflict, InvalidArgument, TurnFailed
from midturn.framework import EventT_co, ResultT_co
from midturn.history.checkpoints import read_checkpoint
from midturn.lease.ledger import consistent, notice_deletion
from midturn.maintenance.compacting import compact
from midturn.questions import check_by, check_why
from midturn.record.head import check_id
from midturn.sessions.background import Background
from midturn.sessions.reader import check_number
from midturn.stopping import stop_of
from midturn.turns.acts import Act, Restoration, bury, commit_act, commit_state, new_archive, read_latest
from midturn.turns.commit import Stamp
from midturn.turns.open_turn import give_up, keep_calls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from midturn.autogen.edits import State
    from midturn.history.checkpoints import Stored
    from midturn.lease.ledger import Ledger, Seen
    from midturn.maintenance.compacting import Compacted
    from midturn.record.rows import Origin
    from midturn.sessions.turnstile import Turnstile
    from midturn.turns.runner import TurnRunner
    from midturn.turns.session_options import Options

_DOING = {
    "waiting": "waits for an answer",
    "running": "was interrupted",
    "failed": "failed",
    "cancelled": "was cancelled",
}
"""Words for the open turn of a session that nobody holds."""


class Acts(Background[EventT_co, ResultT_co], Generic[EventT_co, ResultT_co]):
    """The part of a session that makes checkpoints without a turn. Each is one write."""

    _turnstile: Turnstile
    _options: Options
    _seen: Seen | None
    _runner: TurnRunner[EventT_co, ResultT_co]

    async def fork(
        self,
        session: str,
        *,
        at: int | None = None,
        labels: Mapping[str, str] | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> Self:
        """Create a session that begins with the state of a checkpoint of this one, and remembers which; return it.

        ``at`` is the number of the checkpoint, by default of the latest one. This session does not change, and may run
        a turn meanwhile.

        Raises:
            Conflict: there is already a session with that id.
            NotFound: this session has no such checkpoint.
            HistoryLost: the store has lost turns of this session that this worker has seen.
        """
        other = self._other(check_id(session), labels)
        who, reason = check_by(by), check_why(why)
        if at is not None:
            check_number(at, "at")

        async def read(ledger: Ledger) -> tuple[Stored, bool]:
            number = ledger.progress.checkpoint if at is None else at
            return await read_checkpoint(ledger, number), ledger.progress.redacted

        origin, redacted = await consistent(self._ledger.store, self.id, read, seen=self._seen)
        await other._begin_with(origin, who, reason, redacted=redacted)  # noqa: SLF001 - one class
        return other

    async def _begin_with(self, origin: Stored, by: str, why: str, *, redacted: bool) -> None:
        act = Act(
            kind="fork",
            question=f"Begin with {origin.session}@{origin.number}?",
            by=by,
            why=why,
            about={"session": origin.session, "checkpoint": origin.number},
        )

        async def write() -> int:
            archive = new_archive(self._ledger)
            stamp = replace(
                Stamp.of(origin, archive),
                forked_from=origin.session,
                forked_at=origin.number,
                forked_when=origin.row.at,
            )
            progress = replace(self._ledger.progress, redacted=redacted)
            return await commit_act(self._ledger, archive, origin.tree, stamp, act, progress=progress)

        await self._act(self._check_new, write)

    async def rewind(
        self,
        checkpoint: int,
        *,
        by: str | None = None,
        why: str | None = None,
        discard: bool = False,
        seq: int | None = None,
    ) -> int:
        """Go back to an older checkpoint: make a new one with its state, and return the number of the new one.

        The turns between stay in the history, marked as left behind. What their tools did stays done, and their keys
        still return the recorded results. No agent is needed. ``discard`` gives an open turn up in the same write.
        ``seq`` is that of the :class:`~midturn.SessionInfo` that the decision is based on.

        Raises:
            Conflict: the session has changed since ``seq``.
            NotFound: the session has no such checkpoint.
            TurnFailed: a turn is open, and ``discard`` is not set.
            SessionBusy: another worker holds the session for too long.
        """
        who, number = check_by(by), check_number(checkpoint, "checkpoint")
        question, about = f"Go back to checkpoint {number}?", {"checkpoint": number}
        act = Act(kind="rewind", question=question, by=who, why=check_why(why), about=about)

        async def write() -> int:
            async with self._ledger.reading():
                restoration = await Restoration.read(self._ledger, number)
                is_open = self._ledger.progress.open is not None
                progress, rows = await give_up(self._ledger, who) if is_open else (None, ())
            await self._instance.check_given(restoration.older)
            return await restoration.write(act, progress=progress, rows=rows)

        hint = "Finish it with resume() or answer(), or give it up: rewind(..., discard=True)."

        def check() -> None:
            self._check_seen(seq)
            if not discard:
                self._check_idle(hint=hint)

        return await self._act(check, write)

    async def edit(
        self,
        change: Callable[[State], State | Awaitable[State]],
        *,
        by: str | None = None,
        why: str | None = None,
    ) -> int:
        """Correct the state: make a checkpoint with what ``change`` returns, and return its number.

        ``change`` is a function, sync or async, that gets the latest state as a :class:`~midturn.State` and returns
        another, as migrations do. It is called again if another worker writes the session meanwhile. If the session
        has a factory, the state is migrated to the version of the agents first, and the result has to fit them.
        :meth:`rewind` undoes the edit.

        Raises:
            StateInvalid: the result is not a valid state, or does not fit the agents. Nothing changes.
            NotFound: the session has no checkpoint.
            TurnFailed: a turn is open.
            SessionBusy: another worker holds the session for too long.
        """
        if not callable(change):
            raise InvalidArgument(f"must be a function, not a {type(change).__name__}", path="change")
        act = Act(kind="edit", question="Change the state?", by=check_by(by), why=check_why(why))

        async def write() -> int:
            archive = new_archive(self._ledger)
            async with self._ledger.reading():
                stored = await read_latest(self._ledger, archive)
            self._instance.check_redacts(self._ledger)
            tree, stamp = await self._instance.edited(stored, change, archive)
            if self._instance.redaction is not None:
                self._instance.redaction.learn(stored.tree)
                tree = await self._instance.redacted_tree(tree)
            return await commit_act(self._ledger, archive, tree, stamp, act, journals=self._options.journals)

        hint = "Finish it with resume() or answer(), or discard() it."
        return await self._act(lambda: self._check_idle(hint=hint), write)

    async def reset(self, *, by: str | None = None, why: str | None = None) -> int:
        """Begin a new conversation: make a checkpoint with the state of new agents, and return its number.

        Nothing is removed from the history, and any older checkpoint can still be read.

        Raises:
            TurnFailed: a turn was interrupted or waits; finish it first.
        """
        act = Act(kind="reset", question="Begin a new conversation?", by=check_by(by), why=check_why(why))
        tree = await self._instance.initial()
        return await self._act(self._check_finished, lambda: self._save(tree, "reset", act))

    async def save(self, tree: Any = None, *, origin: Origin = "save") -> int:
        """Store the state of the given live instance, or ``tree``, as a checkpoint; return its number. Run nothing.

        Raises:
            TurnFailed: a turn was interrupted or waits; finish it first.
        """
        if tree is None:
            tree = await self._framework.capture(self._instance.given())
        return await self._act(self._check_finished, lambda: self._save(tree, origin, None), reload=False)

    async def _save(self, tree: Any, origin: Origin, act: Act | None) -> int:
        """Write a state that the agents of this session have."""
        ledger, instance = self._ledger, self._instance
        instance.check_redacts(ledger)
        await instance.read(ledger)
        await instance.describe()
        tree = await instance.redacted_tree(tree)
        stamp, kept, journals = instance.stamp(), await keep_calls(ledger), self._options.journals
        if act is None:
            number = await commit_state(
                ledger, instance.archive, tree, stamp, origin=origin, rows=kept, journals=journals
            )
        else:
            number = await commit_act(ledger, instance.archive, tree, stamp, act, rows=kept, journals=journals)
        instance.end(number)
        return number

    async def load(self) -> int:
        """Load the latest checkpoint into the given live instance; return its number, or 0 if there is no checkpoint.

        Raises:
            StateInvalid: the state does not fit; the instance has its old state again.
        """
        async with self._turnstile.alone(stop_of(None)):
            await self._ledger.refresh()
            return await self._instance.load_given(self._ledger)

    async def compact(self, *, before: int, by: str | None = None, why: str | None = None) -> Compacted:
        """Remove the turns, checkpoints and calls before a turn, and return what was removed.

        Checkpoints from that turn on stay readable, and so do their turns. What the next turn does never changes. The
        decisions of people stay, and so do the keys: a key of a removed turn raises :class:`~midturn.NotFound`, and
        the turn does not run again. ``by`` names the person who decides this. An interrupted call has removed a part;
        the next one continues.

        Raises:
            InvalidArgument: ``before`` is not the number of a turn.
            NotFound: there is no session, or no checkpoint from that turn on.
            SessionBusy: another worker holds the session for too long.
        """
        return await compact(
            self._ledger.store,
            self.id,
            before,
            by=check_by(by),
            why=check_why(why),
            patience=self._options.timeout if self._options.busy == "wait" else 0.0,
            lease=self._ledger.lease,
            seen=self._seen,
        )

    async def delete(self, *, by: str | None = None, why: str | None = None) -> bool:
        """Delete the session for good; return whether it existed.

        ``by`` names the person who deletes it. Only the name, the reason and the time stay on record.
        """
        found = await bury(self._ledger.store, self.id, by=check_by(by), why=check_why(why))
        await notice_deletion(self._ledger.store, self.id, self._seen or {})
        return found

    async def _act(self, check: Callable[[], None], write: Callable[[], Awaitable[int]], *, reload: bool = True) -> int:
        """Check the session and write it, again if another worker was faster; return the new checkpoint.

        With ``reload``, a given live instance gets the new state. Others are built when they are needed next.
        """
        stop = stop_of(None)
        async with self._turnstile.alone(stop) as until:
            while True:
                await self._ledger.refresh()
                await self._ledger.wait(until, stop)
                check()
                await self._runner.end_rest()
                try:
                    number = await write()
                except Conflict as error:
                    self._turnstile.give_way(error, until)
                    continue
                if reload:
                    self._instance.forget()  # it has the state from before
                    if self._instance.is_given:
                        await self._instance.load(self._ledger)
                return number

    def _check_seen(self, seq: int | None) -> None:
        """Check that the session has not changed since it was seen."""
        if seq is not None and self._ledger.seq != seq:
            raise Conflict.of(self.id)

    def _check_new(self) -> None:
        if self._ledger.head is not None:
            raise Conflict(f"there is already a session {self.id!r}; choose another id", session=self.id)

    def _check_idle(self, *, hint: str) -> None:
        """Check that no turn is open."""
        turn, opened = self._ledger.progress.turn, self._ledger.progress.open
        if opened is not None:
            text = f"turn {turn} of session {self.id!r} {_DOING[opened]}, and is still open"
            raise TurnFailed(text, session=self.id, turn=turn, hint=hint)

    def _check_finished(self) -> None:
        """Check that no turn is open that another may not replace."""
        progress = self._ledger.progress
        if progress.is_unfinished:
            raise TurnFailed(
                f"turn {progress.turn} of session {self.id!r} is not finished",
                session=self.id,
                turn=progress.turn,
                hint="Before saving by hand, resume(), answer() or discard() the turn.",
            )

    @abstractmethod
    def _other(self, session: str, labels: Mapping[str, str] | None) -> Self:
        """Return another session of the same agents and options, with this id and these labels."""
