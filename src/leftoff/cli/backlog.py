"""Finishing the turns of many sessions, one after the other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn

from rich.progress import Progress

from leftoff.blueprint import Blueprint
from leftoff.cli.app import broken
from leftoff.cli.conversation import result_json
from leftoff.cli.failures import Interrupted, facts, report
from leftoff.cli.output import console, note, print_json, say
from leftoff.cli.places import existing, look_up
from leftoff.cli.signals import handling
from leftoff.errors import LeftoffError, SessionBusy, SessionDeleted
from leftoff.records import Kind
from leftoff.turns import CheckpointRow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leftoff import OpenStore
    from leftoff.ledger import Ledger
    from leftoff.records import Status


class Backlog:
    """The sessions that crashed workers left behind, and what became of them."""

    def __init__(self, app: str, what: object, *, failed: bool, as_json: bool, trace: bool) -> None:
        """``failed`` says that turns which failed are tried again, too."""
        self._app = app
        self._what = what
        self._failed = failed
        self._as_json = as_json
        self._trace = trace
        self._score: dict[str, list[dict[str, Any]]] = {"finished": [], "failed": [], "busy": [], "skipped": []}

    async def finish(self, url: str, *, labels: Mapping[str, str], prefix: str) -> int:
        """Finish what can be finished, and print it; the exit code."""
        statuses: tuple[Status, ...] = ("running", "failed") if self._failed else ("running",)
        async with existing(url) as store:
            ids = [
                info.id
                for status in statuses
                async for info in store.sessions(status=status, labels=labels, prefix=prefix)
            ]
            # What agents print must not go where the bar is.
            bar = Progress(console=console(err=True), transient=True, redirect_stdout=False, disable=self._quiet(ids))
            with bar, handling(self._leaving(bar)):
                for session in bar.track(ids, description="resuming"):
                    await self._settle(store, session)
        if self._as_json:
            print_json(self._score)
        else:
            say(self._summary() or "nothing to finish")
        return 1 if self._score["failed"] else 0

    async def _settle(self, store: OpenStore, session: str) -> None:
        try:
            ledger = await look_up(store, session)
            opened = ledger.progress.open
            if owner := ledger.busy():
                self._count("busy", session, f"left to the worker that holds it ({owner})", owner=owner)
            elif opened is None or (opened.status != "running" and not self._failed):
                self._count("skipped", session, "finished by another worker meanwhile")
            elif name := await self._stranger(ledger):
                self._count("skipped", session, f"left alone: it was written by the blueprint {name!r}")
            elif (result := await store.session(session, self._what, busy="raise").resume()) is not None:
                self._count("finished", session, f"turn {result.turn} is complete", **result_json(session, result))
            else:
                self._count("skipped", session, "finished by another worker meanwhile")
        except SessionBusy as busy:
            self._count("busy", session, f"left to the worker that holds it ({busy.owner})", owner=busy.owner)
        except SessionDeleted:
            self._count("skipped", session, "deleted meanwhile")
        except Exception as error:  # noqa: BLE001 - a factory may raise anything, and the other sessions go on
            self._fail(session, error if isinstance(error, LeftoffError) else broken(f"building {self._app}", error))

    async def _stranger(self, ledger: Ledger) -> str | None:
        """The name of another blueprint that wrote the session."""
        row = await ledger.read(Kind.CHECKPOINT, CheckpointRow, ledger.progress.checkpoint)
        ours = self._what.name if isinstance(self._what, Blueprint) else ""
        return None if row is None or row.blueprint in ("", ours) else row.blueprint

    def _count(self, how: str, session: str, text: str, **more: Any) -> None:
        self._score[how].append({"session": session, **more} if more else {"session": session, "reason": text})
        if not self._as_json:
            note(f"{session}: {text}")

    def _fail(self, session: str, error: Exception) -> None:
        self._score["failed"].append({"session": session, "error": facts(error, trace=self._trace)})
        if not self._as_json:
            report(error, as_json=False, trace=self._trace)

    def _summary(self) -> str:
        return ", ".join(f"{len(found)} {how}" for how, found in self._score.items() if found)

    def _quiet(self, ids: list[str]) -> bool:
        return self._as_json or len(ids) == 1

    def _leaving(self, bar: Progress) -> Callable[[int, object], NoReturn]:
        """A signal handler that ends the process like a crash.

        The turn that runs is not told: it stays interrupted, so that the next resume finishes it. A cancelled one would
        count as reported to somebody.
        """

        def leave(number: int, _frame: object) -> NoReturn:
            bar.stop()
            stop = Interrupted(number, f"stopped: {self._summary() or 'nothing was finished'}")
            stop.add_note("the rest is still there for the next resume --all")
            os._exit(report(stop, as_json=self._as_json))

        return leave
