"""Run two instances of the app on one store, kill them again and again, and then check the record.

MIDTURN_URL=postgresql://user:password@host/database python drive.py
"""

import argparse
import asyncio
import itertools
import json
import os
import socket
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

AT_ONCE = 12
PATIENCE = 60.0
MIN_KILLS = 3


class NotStarted(Exception):
    """An instance ended before it served anything."""


class Unanswered(Exception):
    """A turn got no answer, although it was sent many times."""


class Instance:
    """One server process of the app. Each start gets a new port."""

    def __init__(self, name: str, ledger: Path) -> None:
        self.name = name
        self.url = ""
        self._environment = {**os.environ, "MODEL_LEDGER": str(ledger)}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = ["-m", "uvicorn", "app:app", "--app-dir", str(Path(__file__).parent), "--log-level", "warning"]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *command, "--port", str(port), env=self._environment, stdout=asyncio.subprocess.DEVNULL
        )
        self.url = f"http://127.0.0.1:{port}"
        async with asyncio.timeout(PATIENCE), httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            while self._process.returncode is None:
                with suppress(httpx.TransportError):
                    await client.get("/health")
                    return
                await asyncio.sleep(0.05)
        raise NotStarted(f"instance {self.name} did not start; its output is above")

    async def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()


@dataclass
class Books:
    """The requests and answers of the client and, at the end, the turns in the store."""

    tasks: dict[str, str] = field(default_factory=dict)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    other_answers: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    served_by: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    histories: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    retries: int = 0
    kills: int = 0
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after ``MIN_KILLS`` kills, when both instances are up again."""


class Client:
    """Sends requests to the instances in turn. After any failure it sends the same request with the same key."""

    def __init__(self, instances: list[Instance], books: Books, advance: Callable[[], None]) -> None:
        self._instances = instances
        self._books = books
        self._advance = advance
        self._http = httpx.AsyncClient(timeout=PATIENCE, trust_env=False)
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def talk(self, session: str, turns: int, first: int) -> None:
        """Hold one conversation. Each turn goes to the next instance; the last one comes when enough kills were."""
        for number in range(1, turns + 1):
            if number == turns:
                await self._books.enough.wait()
            key, task = f"{session}/{number}", _task(session, number)
            self._books.tasks[key] = task
            self._books.answers[key] = await self._deliver(session, task, key, first + number)
            self._advance()
        again = await self._deliver(session, task, key, first + turns + 1)  # the last turn again, to the other
        if again != self._books.answers[key]:
            self._books.other_answers.append(key)

    async def history(self, session: str) -> list[dict[str, Any]]:
        response = await self._http.get(f"{self._instances[0].url}/sessions/{session}")
        return [] if response.status_code == httpx.codes.NOT_FOUND else response.raise_for_status().json()["turns"]

    async def _deliver(self, session: str, task: str, key: str, where: int) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            instance = self._instances[where % len(self._instances)]
            try:
                async with self._slots:
                    url = f"{instance.url}/sessions/{session}/turns"
                    response = await self._http.post(url, json={"task": task, "key": key})
            except httpx.TransportError as error:
                problem = repr(error)
                if not isinstance(error, httpx.ConnectError):
                    self._books.cut.add(key)
            else:
                if response.is_success:
                    self._books.served_by[session].add(instance.name)
                    return response.json()
                problem = f"{response.status_code} {response.text}"
                if not response.is_server_error and "Retry-After" not in response.headers:
                    break
            self._books.retries += 1
            where += 1
            await asyncio.sleep(0.1)
        raise Unanswered(f"{key} was not answered: {problem}")


async def kill_in_turn(instances: list[Instance], every: float, books: Books) -> None:
    """Kill one instance after the other. Wait between kills until both are up."""
    for instance in itertools.cycle(instances):
        await asyncio.sleep(every)
        await instance.kill()
        books.kills += 1
        await instance.start()
        if books.kills >= MIN_KILLS:
            books.enough.set()


async def drive(names: list[str], turns: int, every: float, ledger: Path, bar: Progress) -> tuple[Books, float]:
    """Hold all conversations. Return what the client and the store then know, and the seconds that it took."""
    books = Books()
    instances = [Instance("A", ledger), Instance("B", ledger)]
    try:
        await asyncio.gather(*(instance.start() for instance in instances))
        began = time.monotonic()
        line = bar.add_task("turns", total=len(names) * turns)
        client = Client(instances, books, lambda: bar.advance(line))
        killer = asyncio.create_task(kill_in_turn(instances, every, books))
        try:
            async with asyncio.TaskGroup() as conversations:
                for first, name in enumerate(names):
                    conversations.create_task(client.talk(name, turns, first))
        except* Unanswered as unanswered:
            books.problems += map(str, unanswered.exceptions)
        seconds = time.monotonic() - began
        killer.cancel()
        with suppress(asyncio.CancelledError):
            await killer
        await asyncio.gather(*(instance.stop() for instance in instances))
        await instances[0].start()  # it has served nothing yet: all that it knows is in the store
        for name in names:
            books.histories[name] = await client.history(name)
    finally:
        await asyncio.gather(*(instance.stop() for instance in instances))
    return books, seconds


def audit(books: Books, ledger: Path, turns: int) -> dict[str, Any]:
    """Compare the answers of the client, the turns in the store, and the ledger of the model."""
    asked = defaultdict(list)
    for line in ledger.read_text().splitlines():
        entry = json.loads(line)
        asked[entry["task"]].append(entry["reply"])
    recorded = {turn["key"]: turn for history in books.histories.values() for turn in history}
    again = {key for key, task in books.tasks.items() if len(asked[task]) > 1}
    lost = {key for key, answer in books.answers.items() if _answer(recorded.get(key)) != answer}
    foreign = {key for key, turn in recorded.items() if turn["reply"] not in asked[turn["task"]]}
    disordered = {
        name
        for name, history in books.histories.items()
        if [(turn["turn"], turn["key"], turn["task"], turn["status"]) for turn in history]
        != [(number, f"{name}/{number}", _task(name, number), "done") for number in range(1, turns + 1)]
    }
    forgetful = {name for name, history in books.histories.items() if not _remembers(history)}
    unmoved = {name for name in books.histories if len(books.served_by[name]) < len("AB")}
    wrong = {
        "every turn was acknowledged": books.problems,
        "every acknowledged turn is in the record, with the reply that was acknowledged": lost,
        f"each session has {turns} turns in the record, each key once, in order, done": disordered,
        "each reply in the record is one that the model gave to that task": foreign,
        "each turn began with what the turn before it left": forgetful,
        "a turn that was delivered once more got the same answer": books.other_answers,
        "the model was called again only for turns that a kill cut off": again - books.cut,
        "each session was served by both instances": unmoved,
        f"{MIN_KILLS} kills or more; if not, make --every shorter": [books.kills] if books.kills < MIN_KILLS else [],
    }
    return {
        "sessions": len(books.histories),
        "turns": sum(map(len, books.histories.values())),
        "acknowledged": len(books.answers),
        "kills": books.kills,
        "cut_off": len(books.cut),
        "retries": books.retries,
        "moved": len(books.histories) - len(unmoved),
        "model_calls": sum(map(len, asked.values())),
        "called_again": len(again),
        "wrong": {check: sorted(found) for check, found in wrong.items()},
    }


def _answer(turn: dict[str, Any] | None) -> dict[str, Any] | None:
    return turn and {"turn": turn["turn"], "reply": turn["reply"]}


def _task(session: str, number: int) -> str:
    return f"Please enter item {number} of {session}."


def _remembers(history: list[dict[str, Any]]) -> bool:
    """Return whether each reply counts the entries before it, and names the receipt of the last one."""
    before = "none"
    for number, turn in enumerate(history, start=1):
        words = str(turn["reply"]).rstrip(".").replace(",", "").split()
        if words[:2] != ["Entry", str(number)] or words[-1] != before:
            return False
        before = words[3]
    return True


LABELS = {
    "sessions": "sessions",
    "turns": "turns in the record",
    "acknowledged": "turns acknowledged to the client",
    "kills": "instances killed with SIGKILL",
    "cut_off": "turns whose request was cut off by a kill",
    "retries": "requests sent again, with the same key",
    "moved": "sessions served by both instances",
    "model_calls": "calls of the model",
    "called_again": "turns for which it was called more than once",
    "seconds": "seconds",
}


def show(result: dict[str, Any]) -> None:
    table = Table(show_header=False)
    for name, label in LABELS.items():
        table.add_row(label, str(result[name]))
    table.add_section()
    for check, wrong in result["wrong"].items():
        table.add_row(check, f"[red]NO: {len(wrong)}[/]" if wrong else "[green]yes[/]")
    console = Console(width=None if sys.stdout.isatty() else 100)
    console.print(table)
    for check, wrong in result["wrong"].items():
        for item in wrong[:5]:
            console.print(f"failed: {check}: {item}", markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=50, help="number of conversations")
    parser.add_argument("--turns", type=int, default=10, help="turns in each session")
    parser.add_argument(
        "--every",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="pause before the next kill, with both instances up",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args()
    if not os.environ.get("MIDTURN_URL"):
        parser.error("set MIDTURN_URL to the store, such as postgresql://user:password@localhost/database")
    run = uuid.uuid4().hex[:6]
    names = [f"drive-{run}-{number:02}" for number in range(1, given.sessions + 1)]
    bar = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with tempfile.TemporaryDirectory() as folder, bar:
        ledger = Path(folder, "ledger.jsonl")
        try:
            books, seconds = asyncio.run(drive(names, given.turns, given.every, ledger, bar))
        except NotStarted as error:
            sys.exit(str(error))
        result = {**audit(books, ledger, given.turns), "seconds": round(seconds, 1)}
    if given.json:
        print(json.dumps(result))
    else:
        show(result)
    return 1 if any(result["wrong"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
