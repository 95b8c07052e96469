"""``python -m benchmarks``: run all benchmarks, print tables, and write the figures as JSON if asked."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks import journal
from benchmarks.call_counts import CallFigures, answer_counts, call_counts
from benchmarks.compressing import STORES as COMPRESSING
from benchmarks.compressing import TEXTS, CompressingFigures, compressing
from benchmarks.finding import FILL, PAGE, FindingFigures, finding
from benchmarks.growing import EARLY as EARLY_TURN
from benchmarks.growing import GrowthFigures, growing
from benchmarks.importing import TIMES as IMPORT_TIMES
from benchmarks.importing import ImportFigures, importing
from benchmarks.keeping import FLOORS, WARM, KeepingFigures, keeping
from benchmarks.load import ALONE, CALLS, LoadFigures, load
from benchmarks.load import STORES as LOADED
from benchmarks.long_session import KNOWN, SEED, WINDOW, Figures, long_session
from benchmarks.migrating import MigrationFigures, migrating
from benchmarks.pages import STORES as PAGED
from benchmarks.pages import PageFigures, pages
from benchmarks.remembering import RUNS as REMEMBERING_RUNS
from benchmarks.remembering import MemoryFigures, remembering
from benchmarks.sealing import STORES as SEALING
from benchmarks.sealing import SealingFigures, sealing
from benchmarks.servers import ServerFigures, servers
from benchmarks.tables import (
    append_table,
    call_table,
    capture_table,
    commit_table,
    compressing_table,
    context_table,
    finding_table,
    growth_table,
    import_table,
    keeping_table,
    load_table,
    long_table,
    memory_table,
    migration_table,
    page_table,
    rate_table,
    replay_table,
    restore_table,
    sealing_table,
    server_restore_table,
    size_table,
    turn_table,
    write_table,
)
from benchmarks.team_state import EARLY, TEAMS, TeamFigures, team_state

STORES = ("sqlite", "file")


async def run_long_session(console: Console, options: argparse.Namespace) -> list[Figures]:
    figures: list[Figures] = []
    with Progress(console=console, transient=True) as progress:
        for kind in STORES:
            bar = progress.add_task(f"{kind}: {options.turns:,} turns", total=options.turns)
            figures.append(await long_session(kind, options.turns, partial(progress.advance, bar)))
    console.print(long_table(figures))
    console.print(write_table(figures))
    console.print(
        "Overhead is what a whole turn takes longer than by AutoGen alone, at "
        f"{2 * min(KNOWN, options.turns):,} messages. A commit is the time from the end of the model's work to the "
        f"durable result: capture, packing, write; last / first compares {WINDOW} turns each. save_state is AutoGen's "
        "own at the end, which a commit does without. "
        "A bare transaction appends two rows of the same size with the same durability (for files: one write and "
        "fdatasync); awaited, in a thread, it does not stop the event loop. Restore and save_state are processor time; "
        "our part is without AutoGen's load_state; rows is reading and parsing all rows. All are medians.\n"
    )
    return figures


async def run_team_state(console: Console, options: argparse.Namespace) -> list[TeamFigures]:
    figures: list[TeamFigures] = []
    with Progress(console=console, transient=True) as progress:
        for team in TEAMS:
            for kind in STORES:
                bar = progress.add_task(f"{team}, {kind}: {options.messages:,} messages", total=options.messages)
                advance = partial(progress.advance, bar)
                figures.append(await team_state(team, kind, options.messages, advance))
    for table in (size_table(figures), capture_table(figures, options.messages), restore_table(figures)):
        console.print(table)
    console.print(
        "Raw text counts each task, answer and memory once. Times are medians of processor time. "
        "Growth is late / early; before a turn: that of what makes the team ready for it. "
        "save_state and load_state are AutoGen's own, of the same state in memory; "
        "rows is reading all rows of the session and parsing their JSON.\n"
    )
    return figures


async def run_servers(console: Console, options: argparse.Namespace) -> list[ServerFigures]:
    figures: list[ServerFigures] = []
    with Progress(console=console, transient=True) as progress:
        for kind in ("postgres", "redis"):
            turns = min(options.turns, 2_000)
            bar = progress.add_task(f"{kind}: {turns:,} turns", total=turns)
            figures.append(await servers(kind, turns, partial(progress.advance, bar)))
    console.print(commit_table(figures))
    console.print(rate_table(figures))
    console.print(server_restore_table(figures))
    console.print(
        "What real turns write, given to the store alone: no agent, no model. Medians, on a server on this machine. "
        "A transaction is begin, two inserts of the same texts, commit (for Redis MULTI, two RPUSH, EXEC); "
        "one statement does the same in one round trip. All use the same driver and as many connections. "
        "Bytes are what a turn of the second half adds. A restore is timed by this process's processor; rows is "
        "reading all rows of the session and parsing their JSON.\n"
    )
    return figures


async def run_journal(console: Console, options: argparse.Namespace) -> list[journal.AnyFigures]:
    with Progress(console=console, transient=True) as progress:

        def bar(title: str, total: int) -> partial[None]:
            return partial(progress.advance, progress.add_task(title, total=total))

        appends = [
            await journal.appends(kind, options.calls, bar(f"{kind}: {options.calls} calls", options.calls))
            for kind in ("sqlite", "postgres")
        ]
        replay = await journal.replay(bar("replay", journal.TIMES))
        contexts = await journal.contexts(bar("contexts", len(journal.CONTEXTS)))
        turns = [
            await journal.turns(steps, journal.TURNS, bar(f"turns of {2 * steps + 1} calls", journal.TURNS))
            for steps in journal.TURN_STEPS
        ]
    for table in (append_table(appends), replay_table(replay), context_table(contexts), turn_table(turns)):
        console.print(table)
    console.print(
        "Medians; what is compared is timed in turn, an append and an INSERT after the same pause. A recorded call is "
        "timed from the call of the journal to its durable return, with a model that takes no time. A bare INSERT has "
        "the same bytes, a transaction of its own, the same durability and driver, and a connection of its own; an "
        "awaited one does not stop the event loop, "
        "for which SQLite's driver needs a thread. A turn is finished with a new instance, from reading its journal "
        "to its commit, with one call that was not made before. Contexts are timed by the processor's clock, with a "
        "store in memory.\n"
    )
    return [*appends, replay, *contexts, *turns]


async def run_migrating(console: Console, options: argparse.Namespace) -> list[MigrationFigures]:
    figures: list[MigrationFigures] = []
    with Progress(console=console, transient=True) as progress:
        for kind in ("sqlite", "postgres"):
            bar = progress.add_task(f"{kind}: {options.sessions:,} sessions, three times", total=3 * options.sessions)
            figures.append(await migrating(kind, options.sessions, partial(progress.advance, bar)))
    console.print(migration_table(figures))
    console.print(
        "Each session has five turns, and one write brings it to version 2. Looked at: a second run, which finds "
        "nothing to do. Memory is the most that the process has had; growth: since the first 1,000 of three runs.\n"
    )
    return figures


async def run_finding(console: Console, options: argparse.Namespace) -> list[FindingFigures]:
    figures: list[FindingFigures] = []
    with Progress(console=console, transient=True) as progress:
        for kind in FILL:
            many = options.many // 10 if kind == "file" else options.many  # it reads all its files again and again
            bar = progress.add_task(f"{kind}: {many:,} sessions", total=many)
            figures += await finding(kind, many, partial(progress.advance, bar))
    console.print(finding_table(figures))
    console.print(
        f"A page has {PAGE} sessions. Nine of ten sessions are idle. They are written below midturn; except on Redis, "
        "their last changes are spread over thirty days. Heads are those that the store has read, on SQLite those that "
        "came out of the database. Times are medians, from the call to the last session; those of lineage, audit, "
        "prune and the file store are of one run. One session of ten has a decision, and those that are pruned have "
        "nine rows each.\n"
    )
    return figures


async def run_pages(console: Console, options: argparse.Namespace) -> list[PageFigures]:
    figures: list[PageFigures] = []
    with Progress(console=console, transient=True) as progress:
        for kind in PAGED[:1] if options.embedded else PAGED:
            bar = progress.add_task(f"{kind}: a session of {options.turns:,} turns", total=options.turns)
            figures += await pages(kind, options.turns, options.many, partial(progress.advance, bar))
    console.print(page_table(figures))
    console.print(
        "The HTML of a session's page with its last 50 turns, and of the list with its first 50 sessions and what was "
        "said last in each. Heads, turns and bodies are those that the store returned. Without a network; medians.\n"
    )
    return figures


async def run_remembering(console: Console, options: argparse.Namespace) -> list[MemoryFigures]:
    with Progress(console=console, transient=True) as progress:
        turns = min(options.turns, 5_000)
        bar = progress.add_task(f"memory: {turns:,} turns", total=len(REMEMBERING_RUNS))
        figures = remembering(turns, partial(progress.advance, bar))
    console.print(memory_table(figures))
    return figures


async def run_growing(console: Console, options: argparse.Namespace) -> list[GrowthFigures]:
    with Progress(console=console, transient=True) as progress:
        turns = max(options.turns, 2 * EARLY_TURN)
        bar = progress.add_task(f"growth: {turns:,} turns, four times", total=4)
        figures = growing(turns, partial(progress.advance, bar))
    console.print(growth_table(figures))
    console.print(
        "With a model without vision, AutoGen passes over all messages in every turn. Own growth is without what "
        "AutoGen alone takes longer. Medians of whole turns, on SQLite.\n"
    )
    return figures


async def run_keeping(console: Console, options: argparse.Namespace) -> list[KeepingFigures]:
    figures: list[KeepingFigures] = []
    turns = min(options.turns, 500)
    with Progress(console=console, transient=True) as progress:
        for kind in FLOORS:
            bar = progress.add_task(f"{kind}: {turns} turns", total=WARM + turns)
            figures.append(await keeping(kind, turns, partial(progress.advance, bar)))
    console.print(keeping_table(figures))
    console.print(
        "Keeping is what a turn with one call of a model takes longer than with AutoGen alone. It makes three writes: "
        "the input, the call, the result. A bare transaction is begin, two inserts, commit, awaited and as durable. "
        "Medians.\n"
    )
    return figures


async def run_compressing(console: Console, options: argparse.Namespace) -> list[CompressingFigures]:
    figures: list[CompressingFigures] = []
    turns = min(options.turns, 1_000)
    with Progress(console=console, transient=True) as progress:
        for kind in COMPRESSING:
            if options.embedded and kind in ("postgres", "redis"):
                continue
            for texts in TEXTS:
                bar = progress.add_task(f"{kind}, {texts}: {turns:,} turns", total=turns)
                figures.append(await compressing(kind, texts, turns, partial(progress.advance, bar)))
    console.print(compressing_table(figures))
    console.print(
        "Bytes at rest for each byte of text, whole files and tables; on Redis, memory. Adds: in the second half of "
        "the turns. A turn has a question and an answer, whose lengths are as in mail, and is timed with AutoGen's own "
        "work. A restore is timed by the processor's clock. Medians.\n"
    )
    return figures


async def run_sealing(console: Console, options: argparse.Namespace) -> list[SealingFigures]:
    figures: list[SealingFigures] = []
    turns = min(options.turns, 500)
    with Progress(console=console, transient=True) as progress:
        for kind in SEALING:
            if options.embedded and kind in ("postgres", "redis"):
                continue
            bar = progress.add_task(f"{kind}: {turns:,} turns", total=turns)
            figures.append(await sealing(kind, turns, partial(progress.advance, bar)))
    console.print(sealing_table(figures))
    console.print(
        "The same turns in a plain and in a sealed store, timed with AutoGen's own work. A restore is timed by the "
        "processor's clock. Bytes at rest for each byte of text, neither of them compressed. Medians.\n"
    )
    return figures


async def run_load(console: Console, options: argparse.Namespace) -> list[LoadFigures]:
    counts = [count for count in CALLS if count <= options.parallel]
    stores = [store for store in LOADED if not options.embedded or store not in ("postgres", "redis")]
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("load", total=(1 + len(stores)) * (1 + len(counts)))
        figures = load(counts, options.megabytes * 1_000_000, stores, partial(progress.advance, bar))
    console.print(load_table(figures, messages=False))
    console.print(load_table(figures, messages=True))
    console.print(
        "Calls: one answer of a model starts them all. Again: another process finishes the turn from its journal, "
        "after all of them were recorded. Message: a turn with a task of this size; restore: the next turn, in a new "
        "process. A stall is the longest time between two beats of the event loop, by the clock and by the processor "
        "time of its thread. Other programs change only the first. Both contain Python's own garbage collection. The "
        "peak is resident memory beyond what the process had before, with the message itself. "
        f"{ALONE} keeps nothing.\n"
    )
    return figures


async def run_importing(console: Console, _: argparse.Namespace) -> list[ImportFigures]:
    with Progress(console=console, transient=True) as progress:
        figures = importing(partial(progress.advance, progress.add_task("imports", total=IMPORT_TIMES)))
    console.print(import_table(figures))
    return figures


async def run_call_counts(console: Console, _: argparse.Namespace) -> list[CallFigures]:
    figures = [*await call_counts(), *await answer_counts(), *await call_counts(sealed=True)]
    console.print(call_table(figures))
    console.print(
        "Calls are those of Python functions inside midturn, without the scripted model; a generator that continues "
        "counts as a call. A change is a call in another module than the call before it. On SQLite.\n"
    )
    return figures


BENCHMARKS: dict[str, Any] = {
    "call_counts": run_call_counts,
    "importing": run_importing,
    "remembering": run_remembering,
    "growing": run_growing,
    "keeping": run_keeping,
    "compressing": run_compressing,
    "sealing": run_sealing,
    "load": run_load,
    "long_session": run_long_session,
    "team_state": run_team_state,
    "servers": run_servers,
    "journal": run_journal,
    "migrating": run_migrating,
    "finding": run_finding,
    "pages": run_pages,
}


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=BENCHMARKS, help="run only this benchmark")
    parser.add_argument(
        "--turns",
        type=int,
        default=10_000,
        help="length of the conversation (at most: remembering 5,000, servers 2,000, compressing 1,000, keeping and "
        "sealing 500)",
    )
    parser.add_argument("--messages", type=int, default=1000, help="team_state: length of the team's thread")
    parser.add_argument("--calls", type=int, default=500, help="journal: number of recorded calls")
    parser.add_argument("--sessions", type=int, default=10_000, help="migrating: number of sessions")
    parser.add_argument("--many", type=int, default=100_000, help="finding, pages: number of sessions")
    parser.add_argument("--parallel", type=int, default=max(CALLS), help="load: most calls at once in a turn")
    parser.add_argument("--megabytes", type=int, default=50, help="load: size of the large message")
    parser.add_argument(
        "--embedded", action="store_true", help="load, pages, compressing, sealing: without Postgres and Redis"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if options.messages < EARLY:
        parser.error(f"--messages must be {EARLY} or more")
    console = Console()
    found: dict[str, list[dict[str, Any]]] = {}
    for name, run in BENCHMARKS.items():
        if options.only in (None, name):
            found[name] = [row.as_dict() for row in await run(console, options)]
    if options.json:
        machine = {"python": platform.python_version(), "system": platform.platform(), "seed": SEED}
        options.json.write_text(json.dumps({"machine": machine, **found}, indent=2) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
