"""``midturn prune``: delete the sessions that nobody needs any more."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from midturn.cli.app_argument import load_blueprint
from midturn.cli.errors import Stopped
from midturn.cli.options import by_option, common, label_option
from midturn.cli.output import clean, console, note, print_json, say
from midturn.cli.session_argument import existing
from midturn.cli.signals import run, stoppable
from midturn.cli.times import duration
from midturn.errors import InvalidArgument, MidturnError
from midturn.history.session_info import SessionStatus

if TYPE_CHECKING:
    from datetime import timedelta

    from midturn import PruneReport, Skipped
    from midturn.versions.blueprint import Blueprint

SHOWN = 20
"""Number of sessions of each reason that are named."""


@click.command()
@click.argument("app", required=False)
@click.option("--older-than", "older_than", metavar="AGE", help="Only sessions unchanged for this long: 90d, 12h, 4w.")
@click.option(
    "--status",
    "statuses",
    type=click.Choice([word for word in get_args(SessionStatus) if word != "deleted"]),
    multiple=True,
    help="Only sessions with this status; repeatable.",
)
@label_option("Only sessions with this label; repeatable.")
@click.option("--prefix", default="", help="Only sessions whose id begins with this.")
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Keep the N sessions that changed last.")
@click.option(
    "--archive",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Copy each session to this directory first, and compare the copy.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@by_option
@common
def prune(
    *,
    app: str | None,
    older_than: str | None,
    statuses: tuple[SessionStatus, ...],
    labels: dict[str, str],
    prefix: str,
    keep_last: int | None,
    archive: str | None,
    dry_run: bool,
    yes: bool,
    by: str | None,
    url: str,
    as_json: bool,
) -> int:
    """Delete all sessions that match, such as those that have not changed for 90 days.

    A session must match every option. With APP, only sessions of this Blueprint match; without --older-than, its
    retain= is the age.

    Three kinds of sessions stay: those that a worker holds, those with an open turn unless --status names their status,
    and those that somebody writes in the meantime. Run an interrupted command again to continue it.

    The archive is a store of its own: file:///absolute/DIR.

    For example: midturn prune --older-than 90d --status idle --dry-run
    """
    rules = _Rules(
        older_than=None if older_than is None else duration(older_than),
        statuses=statuses,
        labels=labels,
        prefix=prefix,
        keep_last=keep_last,
        blueprint=None if app is None else load_blueprint(app),
    )
    found = run(rules.prune(url, dry_run=True))
    if not found.deleted or dry_run:
        return _tell(replace(found, dry_run=dry_run), as_json=as_json)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"there is no terminal to confirm the deletion of {_many(len(found.deleted))}; add --yes, "
                "or --dry-run to see them"
            )
        into = f", after copying them to {archive}" if archive else ""
        if not click.confirm(clean(f"Delete {_many(len(found.deleted))} for good{into}?"), err=True):
            note("nothing was deleted")
            return 1
    return _tell(
        run(rules.prune(url, total=len(found.deleted), archive=archive, by=by, quiet=as_json)), as_json=as_json
    )


def _many(count: int) -> str:
    return "1 session" if count == 1 else f"{count} sessions"


class _Rules:
    """The conditions of the command line, and the pruning of a store by them."""

    def __init__(
        self,
        *,
        older_than: timedelta | None,
        statuses: tuple[SessionStatus, ...],
        labels: dict[str, str],
        prefix: str,
        keep_last: int | None,
        blueprint: Blueprint | None,
    ) -> None:
        self._older_than = older_than
        self._statuses = statuses
        self._labels = labels
        self._prefix = prefix
        self._keep_last = keep_last
        self._blueprint = blueprint
        self._deleted = 0

    async def prune(
        self,
        url: str,
        *,
        dry_run: bool = False,
        total: int = 0,
        archive: str | None = None,
        by: str | None = None,
        quiet: bool = False,
    ) -> PruneReport:
        """Prune the store at a URL, and show the progress."""
        err = console(err=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        disable = dry_run or quiet or not err.is_terminal
        async with existing(url) as store:
            with Progress(*columns, console=err, transient=True, disable=disable) as bar:
                task = bar.add_task("deleting", total=total)

                def count(_session: str, skipped: Skipped | None) -> None:
                    self._deleted += skipped is None
                    bar.update(task, completed=self._deleted)

                try:
                    return await stoppable(
                        store.prune(
                            older_than=self._older_than,
                            status=self._statuses or None,
                            labels=self._labels,
                            prefix=self._prefix,
                            keep_last=self._keep_last,
                            blueprint=self._blueprint,
                            archive=archive,
                            dry_run=dry_run,
                            by=by,
                            on_session=count,
                        )
                    )
                except InvalidArgument as error:
                    if error.path != "prune":
                        raise
                    raise click.UsageError(
                        "this would delete every session; give --older-than, --status, --label, --prefix or --keep-last"
                    ) from None
                except Stopped as stop:
                    end = Stopped(stop.number, f"stopped: {self._done()}")
                    end.add_note("run the same command again to continue where it stopped")
                    raise end from None
                except MidturnError as error:
                    if self._deleted:
                        error.add_note(f"{self._done()}; run the same command again to continue")
                    raise

    def _done(self) -> str:
        return f"deleted {self._deleted}"


def _tell(report: PruneReport, *, as_json: bool) -> int:
    """Print a report, and return the exit code: 1 if a session could not be archived or read."""
    bad = [each for each in report.skipped if each.reason in ("unreadable", "not archived")]
    if as_json:
        skipped = [{"session": each.session, "reason": each.reason, "detail": each.detail} for each in report.skipped]
        print_json({"dry_run": report.dry_run, "deleted": list(report.deleted), "skipped": skipped})
        return 1 if bad else 0
    for session in report.deleted[:SHOWN] if report.dry_run else ():
        say(session)
    if report.dry_run and len(report.deleted) > SHOWN:
        note(f"and {len(report.deleted) - SHOWN} more; --json has all of them")
    say(f"{'would delete' if report.dry_run else 'deleted'} {len(report.deleted)}, skipped {len(report.skipped)}")
    for each in report.skipped[:SHOWN]:
        note(f"{each.session}: {each.detail}")
    if len(report.skipped) > SHOWN:
        note(f"and {len(report.skipped) - SHOWN} more; --json has all of them")
    return 1 if bad else 0
