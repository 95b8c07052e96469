"""``midturn keys`` and ``midturn rekey``: the keys that seal a store."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from midturn.cli.errors import Stopped
from midturn.cli.options import by_option, command_line, common, json_option, why_option
from midturn.cli.output import console, note, print_json, print_table, say, table_of
from midturn.cli.session_argument import existing
from midturn.cli.signals import run, stoppable
from midturn.errors import InvalidArgument
from midturn.stores.sealed.keys import FILE_VARIABLE, add_to_file, new_key

if TYPE_CHECKING:
    from midturn import KeyCounts, RekeyReport
    from midturn.maintenance.rekeying import Outcome

SHOWN = 20
"""Number of sessions that stay and are named."""


@click.group(invoke_without_command=True)
@click.pass_context
def keys(context: click.Context) -> None:
    """Make keys that seal a store, and show which sessions need which key.

    A store is sealed if MIDTURN_KEYS or MIDTURN_KEYS_FILE is set. The first key seals new sessions, all of them open
    sessions. With MIDTURN_KEY_SERVICE=app:keys, every command asks the midturn.KeyService of that name.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@keys.command()
@click.argument("key_id", metavar="[ID]", required=False)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the key into this file, before the keys that it has, instead of printing the key.",
)
@json_option
def new(key_id: str | None, file: Path | None, *, as_json: bool) -> None:
    """Make a random key.

    ID is its name, by default the date of today. Keep the key where the database is not: without it, nobody can read
    the sessions that it seals.

    For example: midturn keys new --file keys.txt
    """
    made = new_key(key_id or datetime.now(UTC).strftime("%Y-%m-%d"))
    if file is not None:
        add_to_file(file, made)
    if as_json:
        print_json({"id": made.partition(":")[0], "line": None if file else made, "file": file and str(file)})
        return
    if file is None:
        click.echo(made)
        return
    say(f"{file} begins with the new key {made.partition(':')[0]}")
    note(f"to use it: export {FILE_VARIABLE}={file.absolute()}")


@keys.command()
@common
def status(*, url: str, as_json: bool) -> None:
    """Show how many sessions need which key.

    An old key can be dropped when no session needs it any more: midturn rekey --all.
    """
    counts = run(_counts(url))
    if as_json:
        print_json(
            {
                "key": counts.key,
                "sessions": counts.sessions,
                "deleted": counts.deleted,
                "plain": counts.plain,
                "unreadable": counts.unreadable,
            }
        )
        return
    table = table_of(key="whole", sessions="right", deleted="right")
    for key_id in sorted({counts.key, *counts.sessions, *counts.deleted}, reverse=True):
        name = f"{key_id} (current)" if key_id == counts.key else key_id
        table.add_row(Text(name), f"{counts.sessions.get(key_id, 0):,}", f"{counts.deleted.get(key_id, 0):,}")
    if counts.plain:
        table.add_row(Text("not sealed", style="red"), f"{counts.plain:,}", "")
    if counts.unreadable:
        table.add_row(Text("unreadable", style="red"), f"{counts.unreadable:,}", "")
    print_table(table)
    old = sum(count for key_id, count in counts.sessions.items() if key_id != counts.key)
    if old:
        note(f"to move {old:,} to the current key: {command_line('rekey', url=url, flags=('--all',))}")
    if counts.plain:
        note(f"to seal {counts.plain:,}: {command_line('rekey', url=url, flags=('--all', '--deep'))}")


@click.command()
@click.argument("session", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Rekey all sessions.")
@click.option("--deep", is_flag=True, help="Also make new data keys, and seal the whole history again.")
@click.option("--jobs", type=click.IntRange(min=1), default=4, show_default=True, help="Sessions at a time.")
@click.option("--dry-run", is_flag=True, help="Print what would be rekeyed, and change nothing.")
@by_option
@why_option
@common
def rekey(
    *,
    session: tuple[str, ...],
    all_: bool,
    deep: bool,
    jobs: int,
    dry_run: bool,
    by: str | None,
    why: str | None,
    url: str,
    as_json: bool,
) -> int:
    """Move sealed sessions to the current key, the first one in MIDTURN_KEYS.

    Each session takes one small write. With --deep, each gets a new data key and its whole history is sealed again;
    sessions that are not sealed yet are sealed. Run an interrupted command again to continue it. The exit code is 1 if
    a session stays on an old key.

    For example: midturn rekey --all --dry-run
    """
    if bool(session) == all_:
        raise click.UsageError("give either sessions or --all")
    ids = None if all_ else list(dict.fromkeys(session))
    report = run(_Rekeyer(deep=deep, dry_run=dry_run, jobs=jobs, by=by, why=why, quiet=as_json).run(url, ids))
    return _tell(report, as_json=as_json)


async def _counts(url: str) -> KeyCounts:
    async with existing(url) as store:
        return await store.key_counts()


class _Rekeyer:
    """A rekeying with a progress bar."""

    def __init__(self, *, quiet: bool, **options: Any) -> None:
        self._quiet = quiet
        self._options = options
        self._done = 0

    async def run(self, url: str, ids: list[str] | None) -> RekeyReport:
        """Rekey sessions of the store at a URL, or all of them."""
        err = console(err=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        async with existing(url, allow_plain=self._options["deep"]) as store:
            total = len(ids) if ids is not None else sum((await store.counts()).values())
            disable = self._quiet or self._options["dry_run"] or not err.is_terminal
            with Progress(*columns, console=err, transient=True, disable=disable) as bar:
                task = bar.add_task("rekeying", total=total)

                def count(_session: str, result: Outcome) -> None:
                    self._done += result == "moved"
                    bar.advance(task)

                try:
                    return await stoppable(store.rekey(ids, on_session=count, **self._options))
                except InvalidArgument as error:
                    if error.path == "keys":
                        error.add_note("to make a key: midturn keys new")
                    raise
                except Stopped as stop:
                    end = Stopped(stop.number, f"stopped: rekeyed {self._done:,}")
                    end.add_note("run the same command again to continue where it stopped")
                    raise end from None


def _tell(report: RekeyReport, *, as_json: bool) -> int:
    if as_json:
        skipped = [{"session": each.session, "reason": each.reason, "detail": each.detail} for each in report.skipped]
        print_json(
            {
                "dry_run": report.dry_run,
                "key": report.key,
                "rekeyed": list(report.rekeyed),
                "current": report.current,
                "skipped": skipped,
            }
        )
        return 1 if report.skipped else 0
    verb = "would move" if report.dry_run else "moved"
    say(
        f"{verb} {len(report.rekeyed):,} to key {report.key}; {report.current:,} had it already, "
        f"skipped {len(report.skipped):,}"
    )
    for each in report.skipped[:SHOWN]:
        note(f"{each.session}: {each.detail}")
    if len(report.skipped) > SHOWN:
        note(f"and {len(report.skipped) - SHOWN:,} more; --json has all of them")
    return 1 if report.skipped else 0
