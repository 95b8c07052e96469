"""Run and print the turns of one session."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from midturn.cli.app_argument import broken, is_ours
from midturn.cli.errors import AppInvalid, Stopped
from midturn.cli.messages import Live
from midturn.cli.options import command_line
from midturn.cli.output import note, print_json, say
from midturn.cli.questions import answer_line, open_questions, print_questions, waits
from midturn.cli.session_argument import look_up, reader
from midturn.cli.show import print_history
from midturn.cli.signals import stoppable
from midturn.errors import MidturnError, Misfit
from midturn.history.json_view import questions_json

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from midturn import OpenStore, Session, SessionInfo
    from midturn.autogen.adapter import Event, TurnResult
    from midturn.questions import Question
    from midturn.turns.runner import Diverged

T = TypeVar("T")

HISTORY = 20
"""Number of turns that ``/history`` shows."""


class Conversation:
    """A session that APP runs. Its turns are printed as they happen."""

    def __init__(
        self,
        store: OpenStore,
        case: Session[Event, TurnResult],
        *,
        app: str,
        url: str,
        as_json: bool,
        by: str | None,
        asks: bool = False,
        alone: bool = False,
    ) -> None:
        """Prepare to run a session for the person ``by``, who answers questions at the terminal if ``asks`` is true.

        ``alone`` is true if stdout gets nothing but the answers.
        """
        self._store = store
        self._case = case
        self._app = app
        self._url = url
        self._as_json = as_json
        self._by = by
        self._asks = asks
        self._alone = alone
        self._waits = False
        """True if the open turn waited for an answer when it was last read."""
        self.live = Live(alone=alone)

    async def asked(self) -> tuple[Question, ...]:
        """Return the questions of the open turn; none if nobody is there to answer them."""
        look = self._waits and self._asks
        questions = await open_questions(reader(self._store, self._case.id)) if look else ()
        self._waits = bool(questions)
        return questions

    @property
    def next_line(self) -> str:
        """Return the command that continues the conversation."""
        if self._url.startswith("memory:"):
            return "memory:// loses the session when this process ends"
        return f"continue: {command_line('chat', self._app, self._case.id, url=self._url)}"

    def ways(self, questions: Sequence[Question]) -> list[str]:
        """Return the commands that answer a question later or give the turn up."""
        if self._url.startswith("memory:"):
            return []
        line = answer_line(self._case.id, questions, url=self._url, app=self._app)
        return [f"answer: {line}", f"give the turn up: {self._discard}"]

    @property
    def _again(self) -> str:
        return f"try it again: {self._resume_line}"

    @property
    def _resume_line(self) -> str:
        return command_line("resume", self._app, self._case.id, url=self._url)

    @property
    def _discard(self) -> str:
        return command_line("discard", self._case.id, url=self._url)

    async def catch_up(self, patience: float) -> None:
        """Finish and print an interrupted turn. Show a waiting turn only if somebody can answer."""
        info = await look_up(self._store, self._case.id)
        self.announce(info, patience)
        if info is None or info.owner is not None:
            return
        if info.status == "interrupted":
            self._note(f"turn {info.turns} was interrupted; finishing it first")
        if info.status == "interrupted" or (info.status == "waiting" and self._asks):
            result = await self._resume()
            if result is not None and not self._as_json:
                self._show(result, answers=False)

    async def finish(self, patience: float, *, diverged: Diverged = "raise") -> None:
        """Finish or repeat the open turn and print it. It raises the same errors as :meth:`turn`."""
        self.announce(await look_up(self._store, self._case.id), patience)
        result = await self._resume(diverged)
        if result is not None:
            self._show(result)
        elif self._as_json:
            print_json({"session": self._case.id, "turn": None})
        else:
            say(f"nothing to finish: no turn of {self._case.id} is open")

    async def turn(self, task: str, key: str | None = None) -> None:
        """Run a turn and print it.

        Raises:
            Stopped: a signal came. The turn was cancelled, and the session is as it was before. If people have
                answered the turn, it stays interrupted.
            AppInvalid: the agent or team could not be built.
        """
        self.live = Live(task=task, alone=self._alone)
        result = await self._watch(self._say(task, key))
        recorded = key is not None and not self.live.heard and result.waiting is None
        self._show(result, "this was" if recorded else "saved as")

    async def answer(
        self, text: str, *, question: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Answer a question, and print how the turn continues. It raises the same errors as :meth:`turn`."""
        try:
            result = await self._watch(self._case.answer(text, question=question, arguments=arguments, by=self._by))
        except (Misfit, AppInvalid) as error:
            info = await look_up(self._store, self._case.id)
            if info is not None and info.status == "interrupted":  # the answer is recorded
                error.add_note(f"continue turn {info.turns}: {self._resume_line}")
            raise
        if result is not None:
            self._show(result)

    def announce(self, info: SessionInfo | None, patience: float) -> None:
        """Print that another worker holds the session, if the command waits for it."""
        if info is not None and info.owner is not None and patience:
            self._note(f"another worker holds the session ({info.owner}); waiting up to {patience:g} s")

    async def _resume(self, diverged: Diverged = "raise") -> TurnResult | None:
        self.live = Live(alone=self._alone)
        return await self._watch(self._case.resume(diverged=diverged, by=self._by))

    def _show(self, result: TurnResult, kept: str = "saved as", *, answers: bool = True) -> None:
        """Print the part of a result that was not printed yet. ``answers`` is true if it is what was asked for."""
        self._waits = result.waiting is not None
        if self._as_json:
            print_json(result_json(self._case.id, result))
            return
        for message in result.messages:
            self.live.show(message.dump())
        self.live.conclude(done=answers and result.waiting is None)
        if result.waiting is None:
            note(f"{kept} checkpoint {result.checkpoint}; {self.next_line}")
            return
        self.live.asks = False  # the turn is stored, and nothing reads the terminal
        questions = result.waiting.questions
        say(f"turn {result.turn} of {self._case.id} waits for {waits(questions)}", err=self._alone)
        print_questions(questions, err=self._alone)
        for way in () if self._asks else self.ways(questions):
            note(way)

    async def history(self) -> None:
        """Print the turns of the session so far."""
        turns = [turn async for turn in reader(self._store, self._case.id).history(last=HISTORY + 1)]
        print_history(turns[-HISTORY:], hidden=max(0, len(turns) - HISTORY))

    async def _say(self, task: str, key: str | None) -> TurnResult:
        if self._as_json:
            return await self._case.say(task, key=key, by=self._by)
        from midturn.autogen.adapter import TurnResult, replayed

        async with aclosing(self._case.say_stream(task, key=key, by=self._by)) as stream:
            async for item in stream:
                if isinstance(item, TurnResult):
                    return item
                self.live.hide(item.dump()) if replayed(item) else self.live.show(item.dump())
        raise RuntimeError("a turn ended without a result")

    async def _watch(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a turn. If a signal stops it or APP cannot be built, raise an error with what to do next."""
        try:
            return await stoppable(work)
        except Stopped as stop:
            raise await self._stopped(stop.number) from None
        except (MidturnError, OSError):
            raise
        except Exception as error:  # from a factory: an error of an agent in a turn is a TurnFailed
            if is_ours(error):
                raise
            raise broken(self._app, error) from error
        finally:
            self.live.end()

    async def _stopped(self, number: int) -> Stopped:
        """Return the error for a turn that a signal stopped."""
        info = await look_up(self._store, self._case.id)
        message, hint = "stopped", self.next_line
        if info is not None and info.status == "cancelled":
            message, hint = f"turn {info.turns} was cancelled; the session is as it was before it", self._again
        elif info is not None and info.status in ("interrupted", "waiting"):
            self._waits = info.status == "waiting"
            message, hint = f"turn {info.turns} was stopped; it keeps what people answered", self._again
        stop = Stopped(number, message, session=self._case.id)
        stop.add_note(hint)
        return stop

    def _note(self, text: str) -> None:
        if not self._as_json:  # with --json, stderr has only errors
            note(text)


def result_json(session: str, result: TurnResult) -> dict[str, Any]:
    """Return a turn that is done or waits for an answer, for scripts."""
    return {
        "session": session,
        "turn": result.turn,
        "checkpoint": result.checkpoint,
        "stop_reason": result.stop_reason,
        "usage": {
            "prompt_tokens": result.usage.prompt_tokens,
            "completion_tokens": result.usage.completion_tokens,
        },
        "messages": [message.dump() for message in result.messages],
        "questions": questions_json(result.waiting.questions if result.waiting is not None else ()),
    }
