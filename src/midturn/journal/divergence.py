"""Divergence: the differences between a turn that runs again, with changed code, and its recorded calls."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from midturn.errors import ReplayDiverged
from midturn.journal.recorded import shown_row
from midturn.record.readable import readable, readable_call

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from midturn.framework import Request
    from midturn.journal.order import Gate
    from midturn.journal.recorded import Begun, Entry, Recorded
    from midturn.lease.ledger import Ledger


class Divergence:
    """The differences from the record. If ``tolerant``, recorded calls count as done even if they do not fit."""

    def __init__(
        self, ledger: Ledger, recorded: Recorded, *, tools: Collection[str] | None = None, tolerant: bool = False
    ) -> None:
        self._ledger = ledger
        self._recorded = recorded
        self._tools = tools
        """The tools of today's code; ``None`` if that is unknown."""
        self._tolerant = tolerant
        self._notes: dict[str, None] = {}
        self._begun: dict[str, dict[str, Begun]] = {}
        """The tool calls that were begun, never completed, and not made in this attempt: by the tool, then by key."""
        for key, begun in recorded.pending().items():
            self._begun.setdefault(begun.tool, {})[key] = begun
        self._instead: dict[str, Sequence[int]] = {}

    def count(self, request: Request) -> None:
        """Count a call that is made in this attempt."""
        self._begun.get(request.name, {}).pop(request.key, None)

    def kept(self, request: Request) -> Entry | None:
        """Return the recorded answer of a model that stays valid although its request has changed, if there is one."""
        entry = self._recorded.answered(request.path) if request.what == "model" else None
        if entry is not None and entry.row.attempt:  # the turn itself has a note about calls of an earlier delivery
            self._note(f"{request.path}: its answer was kept though the request has changed: a human relied on it")
        return entry

    async def check(self, request: Request, nth: int, gate: Gate) -> ReplayDiverged | None:
        """Return an error if a new call may repeat the effect of a recorded call.

        A recorded answer of a model may ask for the new call, and for recorded calls beside it. Only calls that were
        recorded before that answer are lost. So a call that was rejected once is rejected again in the next attempt.
        """
        if not self._recorded.entries:
            return None
        if self._recorded.unclaimed(request.path, request.what):
            await gate.quiet()  # other agents may be about to claim their own calls
            await gate.enter()  # many may have waited for that
        if request.what == "model":
            found = self._recorded.unclaimed(request.path, "model")
            for entry in found:
                entry.optional = True
            if found:
                self._instead[request.path] = [entry.number for entry in found]
                self._note(f"{request.path}: the model was asked again, because its request had changed")
        elif request.effect != "read":
            lost = self._lost(request, before=self._recorded.announced(request.key, nth))
            return self._error(lost, readable_call(request.name, request.arguments))
        return None

    def instead(self, path: str) -> Sequence[int]:
        """Return the recorded answers that the next answer of this model replaces."""
        return self._instead.pop(path, ())

    def asked_anew(self, request: Request, question: str) -> ReplayDiverged | None:
        """Return an error if a human is asked a new question, and the answer to another one is not used."""
        lost = [entry.value.get("text", "") for entry in self._recorded.unclaimed(request.path, "human")]
        answers = [f"the answer {readable(text)} to {request.who or request.agent}" for text in lost]
        return self._error(answers, f"the question {readable(question)}")

    def finish(self) -> list[str]:
        """Check that the turn has used all recorded calls; return notes about what has changed.

        Raises:
            ReplayDiverged: the turn has not used a recorded call that had an effect.
        """
        lost = self._lost(None)
        if (error := self._error(lost, None)) is not None:
            raise error
        for what in lost:
            self._note(f"{what} was done, and the turn ended without calling it")
        return list(self._notes)

    def _lost(self, request: Request | None, before: int = sys.maxsize) -> list[str]:
        """Return the recorded calls, complete or begun, that the turn has not made in this attempt.

        With a ``request``, return only the calls that it may repeat: those of the same tool, and of removed tools. They
        are recorded at a number below ``before``.
        """

        def counts(tool: str) -> bool:
            gone = self._tools is not None and tool not in self._tools
            return request is None or tool == request.name or gone

        done = [found for tool, found in self._recorded.effects().items() if counts(tool)]
        rows = {number: entry.row for found in done for number, entry in found.items() if number < before}
        begun = [each for tool, found in self._begun.items() if counts(tool) for each in found.values()]
        doubt = "and nobody knows whether it took effect"
        in_doubt = [f"{each.text}, {doubt}" for each in begun if each.number < before]
        return [*(shown_row(rows[number]) for number in sorted(rows)), *in_doubt]

    def _error(self, lost: Sequence[str], now: str | None) -> ReplayDiverged | None:
        if not lost or self._tolerant:
            return None
        session, turn = self._ledger.session, self._ledger.progress.turn
        instead = f"now comes {now} instead" if now else "now it ends without them"
        made = f"was interrupted after {', '.join(lost)}; the code has changed since"
        if any(not row.attempt for row in self._recorded.rows):
            made = f"delivers a key again, after {', '.join(lost)}; the conversation or the code has changed since"
        return ReplayDiverged(
            f"turn {turn} of session {session!r} {made}, and {instead}.\nmidturn does not repeat recorded work.",
            session=session,
            turn=turn,
            recorded=lost,
            now=now,
            hint='Continue anyway; what was done stays done: resume(diverged="continue"). Give the turn up: '
            'discard(). Or continue from before it under another id: fork("...").',
        )

    def _note(self, text: str) -> None:
        self._notes[text] = None
