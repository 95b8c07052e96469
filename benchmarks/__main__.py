"""``python -m benchmarks``: run them all, print a table, keep the figures as JSON if asked."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.long_session import SEED, SIZE, WINDOW, Figures, long_session


def table(figures: list[Figures]) -> Table:
    shown = Table(title=f"One conversation, {SIZE} + {SIZE} characters a turn")
    for name in ("store", "turns", "bytes / raw text", f"first {WINDOW}", f"last {WINDOW}", "last / first", "/ floor"):
        shown.add_column(name, justify="left" if name == "store" else "right")
    for row in figures:
        shown.add_row(
            row.store,
            f"{row.turns:,}",
            f"{row.bytes_ratio:.2f}x",
            f"{row.first_ms:.2f} ms",
            f"{row.last_ms:.2f} ms",
            f"{row.flat_ratio:.2f}x",
            f"{row.floor_ratio:.2f}x" if row.floor_ratio else "",
        )
    return shown


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--turns", type=int, default=2000, help="length of the conversation")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    console = Console()
    figures: list[Figures] = []
    with Progress(console=console, transient=True) as progress:
        for kind in ("sqlite", "file"):
            bar = progress.add_task(f"{kind}: {options.turns:,} turns", total=options.turns)
            figures.append(await long_session(kind, options.turns, lambda bar=bar: progress.advance(bar)))
    console.print(table(figures))
    console.print(
        "A commit is the median time from the end of the model's work to the durable result: capture, packing, fsync.\n"
        "The floor is a bare SQLite transaction that appends two rows of the same size with the same durability."
    )
    if options.json:
        machine = {"python": platform.python_version(), "system": platform.platform(), "seed": SEED}
        rows = [row.as_dict() for row in figures]
        options.json.write_text(json.dumps({"machine": machine, "figures": rows}, indent=2) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
