"""Finish the turns of many sessions, one after the other."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from rich.progress import Progress

from midturn.cli.app_argument import broken
from midturn.cli.conversation import result_json
from midturn.cli.errors import Stopped, facts, report
from midturn.cli.options import command_line
from midturn.cli.output import console, note, print_json, say
from midturn.cli.questions import open_questions, summary
from midturn.cli.session_argument import existing, reader
from midturn.cli.signals import handling
from midturn.errors import HistoryLost, MidturnError, SessionBusy, SessionDeleted, UnknownVersion
from midturn.history.json_view import questions_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from midturn import OpenStore, SessionInfo
    from midturn.history.session_info import SessionStatus
    from midturn.questions import Question
    from midturn.versions.blueprint import Blueprint


class ResumeAll:
    """Finishes the turns of crashed workers, and counts the results."""

    def __init__(self, app: str, blueprint: Blueprint, url: str, *, failed: bool, as_json: bool, trace: bool) -> None:
        """Prepare to finish turns with APP. If ``failed``, failed and cancelled turns are tried again, too."""
        self._app = app
        self._blueprint = blueprint
        self._url = url
        self._statuses: tuple[SessionStatus, ...] = (
            ("interrupted", "failed", "cancelled") if failed else ("interrupted",)
        )
        """The status of sessions with a turn to finish."""
        self._as_json = as_json
        self._trace = trace
        hows = ("finished", "failed", "busy", "skipped", "waiting")
        self._score: dict[str, list[dict[str, Any]]] = {how: [] for how in hows}
        self._asked: list[Question] = []
        """The open questions of all waiting sessions."""

    async def finish(self, *, labels: Mapping[str, str], prefix: str) -> int:
        """Finish all turns that can be finished, print the results, and return the exit code."""
        async with existing(self._url) as store:
            listed = store.sessions(status=["running", *self._statuses], labels=labels, prefix=prefix)
            ids = [info.id async for info in listed]
            if ids:
                await self._try_to_build()
            # Output of agents must not go where the bar is.
            bar = Progress(console=console(err=True), transient=True, redirect_stdout=False, disable=self._quiet(ids))
            with bar, handling(self._leaving(bar)):
                for session in bar.track(ids, description="resuming"):
                    await self._settle(store, session)
            waiting = [info.id async for info in store.sessions(status="waiting", labels=labels, prefix=prefix)]
            for session in waiting:
                await self._see(store, session)
        if self._as_json:
            print_json(self._score)
            return 1 if self._score["failed"] else 0
        say(self._summary() or "nothing to finish")
        for hint in dict.fromkeys(found["hint"] for found in self._score["skipped"] if "hint" in found):
            note(hint)
        if self._asked:
            note(f"waiting: {summary(self._asked)}")
            note(f"see which sessions wait: {command_line('ls', url=self._url, flags=['--status', 'waiting'])}")
        return 1 if self._score["failed"] else 0

    async def _try_to_build(self) -> None:
        """Build APP once, so that a broken APP is reported before any turn fails because of it."""
        try:
            await self._blueprint.build()
        except Exception as error:
            raise broken(self._app, error) from error

    async def _settle(self, store: OpenStore, session: str) -> None:
        try:
            info = await store.info(session)
            if info.owner is not None:
                self._leave_to(session, info.owner)
            elif info.status not in self._statuses:
                gone = info.status == "deleted"
                self._skip(session, "deleted meanwhile" if gone else "another worker finished it meanwhile")
            elif self._is_stranger(info):
                self._skip_stranger(info)
            elif (result := await store.session(session, self._blueprint, busy="raise").resume()) is not None:
                if result.waiting is not None:
                    return  # it is counted with the others that wait
                self._count("finished", f"{session}: turn {result.turn} is complete", result_json(session, result))
            else:
                self._skip(session, "another worker finished it meanwhile")
        except SessionBusy as busy:
            self._leave_to(session, busy.owner)
        except (SessionDeleted, UnknownVersion) as error:  # it is not for this worker
            self._skip(session, str(error))
        except MidturnError as error:
            self._fail(session, error)
        except Exception as error:  # noqa: BLE001 - from the factory: the other sessions are still finished
            self._fail(session, broken(self._app, error))

    async def _see(self, store: OpenStore, session: str) -> None:
        """Count a session whose turn waits, if it belongs to the blueprint."""
        with suppress(MidturnError):  # deleted meanwhile, or damaged
            info = await store.info(session)
            if not self._is_stranger(info) and (questions := await open_questions(reader(store, session))):
                self._asked += questions
                found = {"session": session, "turn": info.turns, "questions": questions_json(questions)}
                self._score["waiting"].append(found)

    def _fail(self, session: str, error: Exception) -> None:
        if isinstance(error, HistoryLost):  # the store may have lost other calls, too, and they would be made again
            error.add_note(f"stopped: {self._summary() or 'nothing was finished'}")
            raise error
        self._score["failed"].append({"session": session, "error": facts(error, trace=self._trace)})
        if not self._as_json:
            report(error, as_json=False, trace=self._trace)

    def _is_stranger(self, info: SessionInfo) -> bool:
        """Return whether the session belongs to another blueprint, or to none: then any app may have begun it."""
        return info.blueprint != self._blueprint.name

    def _skip_stranger(self, info: SessionInfo) -> None:
        if info.blueprint is not None:
            self._skip(info.id, f"skipped: it belongs to the blueprint {info.blueprint!r}")
            return
        line = command_line("resume", self._app, "SESSION", url=self._url)
        hint = f"adopt such a session by its name: {line}"
        self._skip(info.id, "skipped: it began without a blueprint", hint=hint)

    def _skip(self, session: str, why: str, **more: str) -> None:
        self._count("skipped", f"{session}: {why}", {"session": session, "reason": why, **more})

    def _leave_to(self, session: str, owner: str) -> None:
        self._count("busy", f"{session}: another worker holds it ({owner})", {"session": session, "owner": owner})

    def _count(self, how: str, text: str, found: dict[str, Any]) -> None:
        self._score[how].append(found)
        if not self._as_json:
            note(text)

    def _summary(self) -> str:
        return ", ".join(f"{len(found)} {how}" for how, found in self._score.items() if found)

    def _quiet(self, ids: list[str]) -> bool:
        return self._as_json or len(ids) == 1

    def _leaving(self, bar: Progress) -> Callable[[int, object], NoReturn]:
        """Return a signal handler that ends the process like a crash.

        The running turn is not cancelled. It stays interrupted, and the next resume finishes it. A cancelled turn would
        need ``--failed``.
        """

        def leave(number: int, _frame: object) -> NoReturn:
            bar.stop()
            stop = Stopped(number, f"stopped: {self._summary() or 'nothing was finished'}")
            stop.add_note("the next resume --all finishes the rest")
            os._exit(report(stop, as_json=self._as_json))

        return leave
