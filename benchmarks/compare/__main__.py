"""``python -m benchmarks.compare``: run the same turns with all contenders, and print tables and JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.compare.comparing import Plan, compare
from benchmarks.compare.tables import tables
from benchmarks.compare.talking import INSTALLED, ROOT, is_ours
from benchmarks.workload import SHAPES, Shape

OURS = (
    *("floor-sqlite", "midturn-sqlite", "midturn-sqlite-turn"),
    *("floor-postgres", "midturn-postgres", "midturn-postgres-turn"),
    *("floor-redis", "midturn-redis"),
    *("floor-file", "midturn-file", "json"),
)
THEIRS = (
    *("langgraph-sqlite-sync", "langgraph-sqlite-exit", "langgraph-sqlite-delta"),
    *("openai-sqlite", "adk-sqlite", "dbos-sqlite"),
    *("langgraph-postgres-sync", "langgraph-postgres-exit", "langgraph-postgres-delta"),
    *("openai-postgres", "adk-postgres", "dbos-postgres"),
    "openai-redis",
)
POINTS = (10, 100, 1_000, 10_000)
QUICK = ("floor-sqlite", "midturn-sqlite", "floor-file", "midturn-file", "json")
QUICK_POINTS = (10, 50)
QUICK_SHAPES: tuple[Shape, ...] = ("chat", "team")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("--points", type=_names, help="lengths of the conversation in turns, separated by commas")
    parser.add_argument("--only", type=_names, help="only these contenders, separated by commas")
    parser.add_argument("--shapes", type=_names, help="kinds of turns, separated by commas")
    parser.add_argument("--quick", action="store_true", help="run a short comparison, without servers and peers")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="a folder for compare.json")
    options = parser.parse_args()
    contenders = options.only or (QUICK if options.quick else (*OURS, *THEIRS))
    shapes = options.shapes or (QUICK_SHAPES if options.quick else SHAPES)
    points = [int(point) for point in options.points or (QUICK_POINTS if options.quick else POINTS)]
    for given, known in ((contenders, (*OURS, *THEIRS)), (shapes, SHAPES)):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    console = Console(width=None if sys.stdout.isatty() else 120)
    if not INSTALLED.exists() and not all(map(is_ours, contenders)):
        console.print("notice: the peers are missing: they are not installed; type: make .venv/peers/.installed")
        contenders = [name for name in contenders if is_ours(name)]
    plan = Plan(contenders=contenders, shapes=shapes, points=sorted(points), rates=not options.quick)
    options.out.mkdir(parents=True, exist_ok=True)
    results = compare(plan, console, options.out / "compare.json")
    for table in tables(results):
        console.print(table)
    for notice in results.notices:
        console.print(notice)


def _names(words: str) -> list[str]:
    return words.split(",")


if __name__ == "__main__":
    main()
