"""``midturn migrate`` and ``midturn rollback``: migrate sessions to the version of a Blueprint, and undo that."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from difflib import unified_diff
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from midturn.cli.app_argument import broken, load_blueprint
from midturn.cli.errors import Stopped
from midturn.cli.options import by_option, command_line, common, label_option, traceback_option
from midturn.cli.output import clean, complain, console, dump_json, note, print_json, say
from midturn.cli.session_argument import existing
from midturn.cli.signals import run, stoppable
from midturn.errors import HistoryLost, MidturnError, NotFound, StoreFull, StoreUnavailable
from midturn.record.head import check_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    import midturn
    from midturn.maintenance.migrating import Result, Worker

MAX_LINES = 40
"""Largest number of lines shown of a sample."""

AGAIN = "run the same command again to continue where it stopped"
COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _bulk(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that both commands share."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Print what would change, and write nothing."),
        click.option("--session", "sessions", metavar="ID", multiple=True, help="Only this session; repeatable."),
        label_option("Only sessions with this label; repeatable."),
        click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N changed sessions."),
        click.option(
            "--jobs",
            type=click.IntRange(1, 64),
            metavar="N",
            default=4,
            show_default=True,
            help="Sessions at the same time.",
        ),
        click.option(
            "--samples", type=click.IntRange(min=0), metavar="N", default=3, show_default=True, help="Changes to show."
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("app")
@click.option("--run", "name", metavar="NAME", help="The name of this run, for rollback.  [default: BLUEPRINT-vN]")
@by_option
@traceback_option
@_bulk
@common
def migrate(
    *,
    app: str,
    name: str | None,
    by: str | None,
    dry_run: bool,
    sessions: tuple[str, ...],
    labels: dict[str, str],
    limit: int | None,
    jobs: int,
    samples: int,
    url: str,
    as_json: bool,
    trace: bool,  # noqa: ARG001 - main() reads it
) -> int:
    """Migrate sessions to the version of the Blueprint APP.

    A session migrates by itself when it is next used. This command migrates all sessions now. Each session gets a new
    checkpoint, and its earlier checkpoints do not change. The command skips sessions of other blueprints, and sessions
    without a blueprint unless --session names them. It also skips sessions with an open turn: they migrate when the
    turn continues. At the end, it retries sessions that a worker holds. Run an interrupted migration again to
    continue it. The exit code is 1 if a session failed or stayed busy.
    """
    blueprint = load_blueprint(app)
    from midturn.autogen.adapter import AutoGen
    from midturn.maintenance.migrating import MigrationRun

    name = name or f"{blueprint.name}-v{blueprint.version}"

    async def worker(store: midturn.OpenStore) -> Worker:
        migration = MigrationRun(
            store.store, blueprint, AutoGen(), run=name, by=by, dry_run=dry_run, adopt=bool(sessions)
        )
        try:
            await migration.build()
        except MidturnError:
            raise
        except Exception as error:
            raise broken(app, error) from error
        return migration

    undo = command_line("rollback", name, url=url)
    score = _Score("migrated", undo, dry_run=dry_run, samples=samples, as_json=as_json)
    return run(score.bulk(url, worker, jobs=jobs, sessions=sessions, labels=labels, limit=limit))


@click.command()
@click.argument("name", metavar="RUN")
@by_option
@_bulk
@common
def rollback(
    *,
    name: str,
    by: str | None,
    dry_run: bool,
    sessions: tuple[str, ...],
    labels: dict[str, str],
    limit: int | None,
    jobs: int,
    samples: int,
    url: str,
    as_json: bool,
) -> int:
    """Undo the migration RUN.

    `midturn migrate` prints the name of its run. Each session of the run gets a new checkpoint with its earlier state
    and version. The command skips and reports sessions that have continued since. Sessions that migrated by themselves
    belong to no run. The exit code is 1 if a session could not be rolled back.
    """
    from midturn.maintenance.migrating import RollbackRun

    async def worker(store: midturn.OpenStore) -> Worker:
        return RollbackRun(store.store, run=name, by=by, dry_run=dry_run)

    score = _Score("rolled back", None, dry_run=dry_run, samples=samples, as_json=as_json)
    code = run(score.bulk(url, worker, jobs=jobs, sessions=sessions, labels=labels, limit=limit))
    if score.is_untouched:
        error = NotFound(f"no session was migrated in a run {name!r}")
        error.add_note("midturn migrate prints the name of its run, and so does midturn show SESSION")
        raise error
    return code


class _Score:
    """Counts of the results. Only sessions that need a person are kept by name."""

    def __init__(self, done: str, undo: str | None, *, dry_run: bool, samples: int, as_json: bool) -> None:
        self._bad = ("busy", "failed") if undo else ("busy", "failed", "open")
        """Results that make the exit code 1. An open turn migrates when it continues, but nothing rolls it back."""
        self._done = f"would be {done}" if dry_run else done
        self._next = f"to undo it: {undo}" if undo else "newer code migrates them again when they are next used"
        if dry_run:
            self._next = "nothing was written"
        self._samples = samples
        self._as_json = as_json
        self._counts = dict.fromkeys(("changed", "unchanged", "open", "busy", "failed"), 0)
        self._unchanged: Counter[str] = Counter()
        """Counts of unchanged sessions by reason."""
        self._told: set[str] = set()
        self._left: list[dict[str, str]] = []
        self._shown: list[dict[str, str]] = []

    @property
    def is_untouched(self) -> bool:
        """Return whether there was nothing to do."""
        return not any(count for how, count in self._counts.items() if how != "unchanged")

    async def bulk(
        self,
        url: str,
        make: Callable[[midturn.OpenStore], Any],
        *,
        jobs: int,
        sessions: Sequence[str],
        labels: Mapping[str, str],
        limit: int | None,
    ) -> int:
        """Work on the sessions, print the counts, and return the exit code."""
        if sessions and labels:
            raise click.UsageError("give --session or --label, not both")
        async with existing(url) as store:
            for id_ in sessions:
                if await store.store.head(check_id(id_)) is None:
                    raise NotFound.of(id_)
            workers = [await make(store) for _ in range(jobs)]
            try:
                await stoppable(self._each(store, workers, list(dict.fromkeys(sessions)), labels, limit))
            except Stopped as stop:
                end = Stopped(stop.number, f"stopped: {self._summary()}")
                end.add_note(AGAIN)
                raise end from None
            except (StoreFull, StoreUnavailable) as error:  # the other sessions would fail in the same way
                error.add_note(f"{self._summary()}; {AGAIN}")
                raise
            except HistoryLost as error:  # nobody knows what else the store has lost
                error.add_note(self._summary())
                raise
            finally:
                if self._as_json:
                    print_json(
                        {
                            **self._counts,
                            "reasons": dict(self._unchanged),
                            "left": self._left,
                            "samples": self._shown,
                        }
                    )
        if not self._as_json:
            self._print(limit)
        return 1 if any(self._counts[how] for how in self._bad) else 0

    def _print(self, limit: int | None) -> None:
        say(self._summary())
        for reason, count in self._unchanged.items():
            note(f"unchanged: {count} {reason}")
        if limit is not None and self._counts["changed"] >= limit:
            note("stopped at the limit; there may be more")
        if self._counts["changed"]:
            note(self._next)

    async def _each(
        self,
        store: midturn.OpenStore,
        workers: Sequence[Worker],
        sessions: Sequence[str],
        labels: Mapping[str, str],
        limit: int | None,
    ) -> None:
        from midturn.maintenance.migrating import in_bulk

        async def ids() -> AsyncGenerator[str, None]:
            if sessions:
                for id_ in sessions:
                    yield id_
                return
            async with aclosing(store.sessions(labels=labels)) as listed:
                async for info in listed:
                    yield info.id

        err = console(err=True)
        quiet = self._as_json or not err.is_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=err, transient=True, disable=quiet) as bar:
            total = None if quiet else sum([1 async for _ in ids()])
            task = bar.add_task("looking", total=total)

            def tell(result: Result) -> None:
                self._count(result)
                bar.update(task, advance=1, description=f"{self._done} {self._counts['changed']}")

            await in_bulk(ids(), workers, tell, limit=limit)

    def _count(self, result: Result) -> None:
        self._counts[result.became] += 1
        if result.became == "changed":
            if len(self._shown) < self._samples:
                self._show(result)
        elif result.became == "unchanged":
            if result.reason:
                self._unchanged[result.reason] += 1
        else:
            self._left.append({"session": result.session, "became": result.became, "reason": result.reason})
            if not self._as_json:
                self._complain(result)

    def _complain(self, result: Result) -> None:
        reason, *more = result.reason.splitlines()
        if result.became != "failed":
            note(f"{result.session}: {reason}")
            return
        new = [line for line in more if "\n".join(more) not in self._told]  # the same advice is printed once
        self._told.add("\n".join(more))
        complain(f"{result.session}: {reason}", *new)

    def _show(self, result: Result) -> None:
        before, after = (dump_json(tree, indent=2).splitlines() for tree in (result.before, result.after))
        lines = list(islice(unified_diff(before, after, n=2, lineterm=""), 2, None))
        self._shown.append({"session": result.session, "diff": "\n".join(lines)})
        if not self._as_json:
            say(f"{result.session}:", style="bold")
            for each in lines[:MAX_LINES]:
                say(Text(clean(each), style=COLOURS.get(each[:1], "")))
            if len(lines) > MAX_LINES:
                note(f"and {len(lines) - MAX_LINES} lines more; --json has all of them")
            if not lines:
                note("only the version changes")

    def _summary(self) -> str:
        counts = [f"{self._done} {self._counts['changed']}", f"unchanged {self._counts['unchanged']}"]
        counts += [f"{how} {self._counts[how]}" for how in ("open", "busy", "failed") if self._counts[how]]
        return ", ".join(counts)
