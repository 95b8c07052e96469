"""``midturn copy``: sessions with their whole history from one store to another."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import Progress

import midturn
from midturn.cli.errors import Stopped, facts, report
from midturn.cli.options import command_line, json_option
from midturn.cli.output import console, line, note, print_json, say
from midturn.cli.session_argument import existing
from midturn.cli.signals import run, stoppable
from midturn.errors import (
    MidturnError,
    NotFound,
    SessionBusy,
    SessionDeleted,
    StateInvalid,
    StoreFull,
    StoreUnavailable,
)
from midturn.maintenance import copying
from midturn.record.head import check_id
from midturn.stores.registry import locate

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

GO_ON = "run the same again: it goes on where it stopped"


@click.command()
@click.argument("source", metavar="SRC_URL")
@click.argument("target", metavar="DST_URL")
@click.option("--session", "sessions", metavar="ID", multiple=True, help="This session; may be given several times.")
@click.option("--all", "all_", is_flag=True, help="All sessions; those that were deleted stay deleted there, too.")
@json_option
def copy(*, source: str, target: str, sessions: tuple[str, ...], all_: bool, as_json: bool) -> int:
    """Copy sessions with their whole history to another store.

    What was copied is read back and compared. The store at SRC_URL stays as it is. Run it again at any time: what was
    cut off is finished, what has gone on in SRC_URL is brought up to date, and a session that has gone on in DST_URL is
    left alone and reported. Sessions in which a turn runs are left for the next time, and the exit code is 1 then.
    """
    if bool(sessions) == all_:
        raise click.UsageError("give --session ID, once or several times, or --all, and not both")
    if _is_same(source, target):
        raise click.UsageError("SRC_URL and DST_URL are the same store; name another one to copy to")
    return run(_Copier(source, target, as_json=as_json).copy(list(dict.fromkeys(sessions))))


class _Copier:
    """Copies sessions one after the other, and counts what became of them."""

    def __init__(self, source: str, target: str, *, as_json: bool) -> None:
        self._source = source
        self._target = target
        self._as_json = as_json
        self._score: dict[str, list[Any]] = {"copied": [], "unchanged": [], "deletions": [], "busy": [], "failed": []}

    async def copy(self, named: list[str]) -> int:
        """Copy the named sessions, or all, and print the score; the exit code."""
        async with existing(self._source) as source:
            ids = await self._check(source, named) if named else await self._list(source)
            async with midturn.open(self._target) as target:
                try:
                    await stoppable(self._each(source, target, ids))
                except Stopped as stop:
                    end = Stopped(stop.number, f"stopped: {self._summary()}")
                    end.add_note(GO_ON)
                    raise end from None
                finally:
                    if self._as_json:
                        print_json(self._score)
        if not self._as_json:
            say(self._summary())
        return 1 if self._score["busy"] or self._score["failed"] else 0

    async def _check(self, source: midturn.OpenStore, named: list[str]) -> list[str]:
        missing: list[str] = []
        for id_ in map(check_id, named):
            try:
                head = await source.store.head(id_)
            except StateInvalid:
                continue  # damaged, which is told when its turn comes
            if head is None:
                missing.append(id_)
            elif head.status == "deleted":
                raise SessionDeleted(f"session {id_!r} was deleted; --all copies that it is", session=id_)
        if missing:
            error = NotFound(f"there is no session {', '.join(map(repr, missing))}", session=missing[0])
            error.add_note(f"{command_line('ls', url=self._source)} shows which there are")
            raise error
        return named

    async def _list(self, source: midturn.OpenStore) -> list[str]:
        with _heard() as warnings:
            ids = [info.id async for info in source.sessions()]
            ids += [info.id async for info in source.sessions(status="deleted")]
        for warning in dict.fromkeys(warnings):  # what cannot even be listed must not be missed in silence
            self._fail(None, MidturnError(warning))
        return ids

    async def _each(self, source: midturn.OpenStore, target: midturn.OpenStore, ids: Sequence[str]) -> None:
        err = console(err=True)
        with Progress(console=err, transient=True, disable=self._as_json or not err.is_terminal) as bar:
            task = bar.add_task("copying", total=len(ids))
            for id_ in ids:
                written = 0

                def show(size: int, id_: str = id_) -> None:
                    nonlocal written
                    written += size
                    bar.update(task, description=f"copying {escape(line(id_, 40))} ({decimal(written)})")

                show(0)
                try:
                    outcome = await copying.copy(source.store, target.store, id_, on_write=show)
                    self._score["deletions" if outcome == "deletion" else outcome].append(id_)
                except SessionBusy as busy:
                    self._score["busy"].append({"session": id_, "owner": busy.owner, "message": str(busy)})
                    if not self._as_json:
                        note(str(busy))
                except (StoreFull, StoreUnavailable) as error:  # the others would fare no better
                    error.add_note(f"{self._summary()}; {GO_ON}")
                    raise
                except MidturnError as error:
                    self._fail(id_, error)
                bar.advance(task)

    def _fail(self, session: str | None, error: MidturnError) -> None:
        self._score["failed"].append({"session": session, "error": facts(error)})
        if not self._as_json:
            report(error, as_json=False)

    def _summary(self) -> str:
        return ", ".join(f"{how} {len(found)}" for how, found in self._score.items() if found) or "nothing copied"


def _is_same(source: str, target: str) -> bool:
    """Whether two URLs mean the same store, as far as one can tell; if not, all in it will be found unchanged."""
    (scheme, here), (other, there) = locate(source), locate(target)
    if here is None or there is None:
        return source == target
    return scheme == other and (here == there or (here.exists() and there.exists() and here.samefile(there)))


@contextmanager
def _heard() -> Generator[list[str]]:
    """What midturn warns of meanwhile."""
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]  # all that a handler is
    logger = logging.getLogger("midturn")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
