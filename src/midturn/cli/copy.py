"""``midturn copy``: copy sessions with their whole history to another store."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import Progress

from midturn.cli.errors import Stopped, facts, report
from midturn.cli.key_argument import opened
from midturn.cli.options import command_line, json_option
from midturn.cli.output import console, line, note, print_json, say
from midturn.cli.session_argument import existing
from midturn.cli.signals import run, stoppable
from midturn.errors import (
    HistoryLost,
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

    import midturn

AGAIN = "run the same command again to continue where it stopped"


@click.command()
@click.argument("source", metavar="SRC_URL")
@click.argument("target", metavar="DST_URL")
@click.option("--session", "sessions", metavar="ID", multiple=True, help="Copy this session; repeatable.")
@click.option("--all", "all_", is_flag=True, help="Copy all sessions, and mark deleted ones as deleted.")
@click.option("--source-keys", metavar="KEYS", help="The keys of SRC_URL: a key file, module:attribute, or none.")
@click.option("--target-keys", metavar="KEYS", help="The keys of DST_URL, in the same way.")
@json_option
def copy(
    *,
    source: str,
    target: str,
    sessions: tuple[str, ...],
    all_: bool,
    source_keys: str | None,
    target_keys: str | None,
    as_json: bool,
) -> int:
    """Copy sessions with their whole history to another store.

    The command reads every copy back and compares it with the source. The store at SRC_URL does not change. Run the
    command again at any time: it continues an interrupted copy where it stopped, and updates sessions that have
    continued in SRC_URL. It skips and reports a session that has continued in DST_URL. It skips a session with a
    running turn, and the exit code is then 1.

    Both stores have the keys of MIDTURN_KEYS, unless an option gives one of them other keys or none. So a copy can seal
    sessions, open them, or seal them with other keys.
    """
    if bool(sessions) == all_:
        raise click.UsageError("give either --session ID, which can be repeated, or --all")
    if _is_same(source, target):
        raise click.UsageError("SRC_URL and DST_URL are the same store; name another DST_URL")
    return run(_Copier(source, target, (source_keys, target_keys), as_json=as_json).copy(list(dict.fromkeys(sessions))))


class _Copier:
    """Copies sessions one after the other, and counts the results."""

    def __init__(self, source: str, target: str, keys: tuple[str | None, str | None], *, as_json: bool) -> None:
        self._source = source
        self._target = target
        self._keys = keys
        self._as_json = as_json
        self._score: dict[str, list[Any]] = {"copied": [], "unchanged": [], "deletions": [], "busy": [], "failed": []}

    async def copy(self, named: list[str]) -> int:
        """Copy the named sessions, or all of them, print the counts, and return the exit code."""
        async with existing(self._source, keys=self._keys[0]) as source:
            ids = await self._check(source, named) if named else await self._list(source)
            async with opened(self._target, keys=self._keys[1]) as target:
                try:
                    await stoppable(self._each(source, target, ids))
                except Stopped as stop:
                    end = Stopped(stop.number, f"stopped: {self._summary()}")
                    end.add_note(AGAIN)
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
                continue  # damaged: copying it reports that
            if head is None:
                missing.append(id_)
            elif head.status == "deleted":
                raise SessionDeleted(f"session {id_!r} was deleted; --all marks it as deleted in DST_URL", session=id_)
        if missing:
            error = NotFound(f"there is no session {', '.join(map(repr, missing))}", session=missing[0])
            error.add_note(f"list the sessions: {command_line('ls', url=self._source)}")
            raise error
        return named

    async def _list(self, source: midturn.OpenStore) -> list[str]:
        with heard() as warnings:
            ids = [info.id async for info in source.sessions()]
            ids += [info.id async for info in source.sessions(status="deleted")]
        for warning in dict.fromkeys(warnings):  # a session that cannot even be listed is reported, too
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
                except (StoreFull, StoreUnavailable) as error:  # the other sessions would fail in the same way
                    error.add_note(f"{self._summary()}; {AGAIN}")
                    raise
                except HistoryLost as error:  # nobody knows what else the store has lost
                    error.add_note(self._summary())
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
    """Return whether two URLs name the same store. A wrong "no" does no harm: every session is found unchanged."""
    (scheme, here), (other, there) = locate(source), locate(target)
    if here is None or there is None:
        return source == target
    return scheme == other and (here == there or (here.exists() and there.exists() and here.samefile(there)))


@contextmanager
def heard() -> Generator[list[str]]:
    """Collect the warnings that midturn logs meanwhile."""
    heard: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]  # all that it needs
    logger = logging.getLogger("midturn")
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)
