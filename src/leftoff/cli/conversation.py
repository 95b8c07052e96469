"""Turns of one session, as a person sees them."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

from leftoff.cli.app import broken, is_ours
from leftoff.cli.failures import Interrupted
from leftoff.cli.messages import Live
from leftoff.cli.options import command_line
from leftoff.cli.output import note, print_json, say
from leftoff.cli.places import look_up
from leftoff.cli.signals import stoppable
from leftoff.errors import LeftoffError, TurnFailed

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from leftoff import OpenStore, Session
    from leftoff.autogen import Event, TurnResult

T = TypeVar("T")


class Conversation:
    """A session that APP runs; its turns are printed as they happen."""

    def __init__(
        self, store: OpenStore, case: Session[Event, TurnResult], *, app: str, url: str, as_json: bool
    ) -> None:
        self._store = store
        self._case = case
        self._app = app
        self._url = url
        self._as_json = as_json
        self.live = Live()

    @property
    def next_line(self) -> str:
        """What to type to go on."""
        if self._url.startswith("memory:"):
            return "memory:// forgets it with this process"
        return f"continue: {command_line('chat', self._app, self._case.id, url=self._url)}"

    @property
    def _again(self) -> str:
        return f"try it again: {command_line('resume', self._app, self._case.id, url=self._url)}"

    async def catch_up(self, patience: float) -> None:
        """Finish a turn that another process left behind, saying so."""
        interrupted = await self._announce(patience)
        if interrupted:
            self._note(f"turn {interrupted} was interrupted; it is finished first")
            result = await self._resume()
            if result is not None and not self._as_json:
                self._show(result)

    async def finish(self, patience: float) -> None:
        """Finish or repeat the open turn and print it; raises as :meth:`turn`."""
        await self._announce(patience)
        result = await self._resume()
        if result is not None:
            self._show(result)
        elif self._as_json:
            print_json({"session": self._case.id, "turn": None})
        else:
            say(f"nothing to finish: the last turn of {self._case.id} is complete")

    async def turn(self, task: str, key: str | None = None) -> None:
        """Run a turn and print it.

        Raises:
            Interrupted: by a signal; the turn was cancelled and the session is as it was before.
            AppInvalid: the agent or team could not be built.
        """
        from autogen_agentchat.messages import TextMessage

        message = TextMessage(content=task, source="user")
        self.live = Live(message.id)
        result = await self._watch(self._run(message, key))
        recorded = key is not None and not self.live.heard
        if recorded:
            self.live = Live(result.messages[0].id)  # the task, as it was delivered first
        self._show(result, "this was" if recorded else "saved as")

    async def _announce(self, patience: float) -> int:
        """Say if another worker is waited for; otherwise, the number of the turn that was interrupted, if one was."""
        ledger = await look_up(self._store, self._case.id)
        if owner := ledger.busy():
            if patience:
                self._note(f"another worker holds the session ({owner}); waiting up to {patience:g} s")
            return 0
        return ledger.progress.turn if ledger.progress.open == "running" else 0

    async def _resume(self) -> TurnResult | None:
        self.live = Live()
        return await self._watch(self._case.resume())

    def _show(self, result: TurnResult, kept: str = "saved as") -> None:
        """Print a result, or what was not printed of it yet."""
        if self._as_json:
            print_json(result_json(self._case.id, result))
            return
        for message in result.messages:
            self.live.show(message.dump())
        self.live.end()
        note(f"{kept} checkpoint {result.checkpoint}; {self.next_line}")

    async def _run(self, message: Any, key: str | None) -> TurnResult:
        if self._as_json:
            return await self._case.run(message, key=key)
        from leftoff.autogen import TurnResult

        async with aclosing(self._case.run_stream(message, key=key)) as stream:
            async for item in stream:
                if isinstance(item, TurnResult):
                    return item
                self.live.show(item.dump())
        raise RuntimeError("a turn ended without a result")

    async def _watch(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work on a turn; say what to do next if it does not come to its end."""
        try:
            return await stoppable(work)
        except Interrupted as stop:
            raise await self._stopped(stop.number) from None
        except TurnFailed as error:
            error.add_note(self._again)
            raise
        except (LeftoffError, OSError):
            raise
        except Exception as error:  # from a factory: what an agent raises in a turn is a TurnFailed
            if is_ours(error):
                raise
            raise broken(self._app, error) from error
        finally:
            self.live.end()

    async def _stopped(self, number: int) -> Interrupted:
        """What a signal did to the turn."""
        progress = (await look_up(self._store, self._case.id)).progress
        message, hint = "stopped", self.next_line
        if progress.open == "cancelled":
            message, hint = f"turn {progress.turn} was cancelled; the session is as it was before it", self._again
        stop = Interrupted(number, message, session=self._case.id)
        stop.add_note(hint)
        return stop

    def _note(self, text: str) -> None:
        if not self._as_json:  # scripts find errors on stderr, and nothing else
            note(text)


def result_json(session: str, result: TurnResult) -> dict[str, Any]:
    """A turn that ended well, for scripts."""
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
    }
