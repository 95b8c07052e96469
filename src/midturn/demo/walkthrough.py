"""``midturn demo``: a support case survives the death of its process, and a control does not."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

import midturn
from midturn.demo.local_server import local_server
from midturn.demo.model import FACT, MODEL_URL, QUESTION, choose
from midturn.demo.worker import CASE
from midturn.errors import MidturnError
from midturn.history.json_view import TurnJson, turn_json
from midturn.sessions.reader import SessionReader

if TYPE_CHECKING:
    from rich.console import Console

    from midturn.history.turns import StoredTurn

KEYWORD = "email"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of the demo."""

    model: str
    answer: str
    remembered: bool
    control_answer: str
    control_knew: bool
    history: list[TurnJson]


async def run_demo(console: Console, *, as_json: bool) -> int:
    """Run the demo, and return 0 if the answer came from memory. With ``as_json``, print only the report."""
    if not as_json:
        # The store stays, so that the page can show the case.
        report = await _demo(_Aloud(console), tempfile.mkdtemp(prefix="midturn-demo-"))
    else:
        with tempfile.TemporaryDirectory(prefix="midturn-demo-") as folder:
            report = await _demo(_Quiet(), folder)
        console.print_json(json.dumps(asdict(report)))
    return 0 if report.remembered else 1


class _Quiet:
    """Prints nothing."""

    def title(self, text: str) -> None: ...

    def line(self, who: str, text: str, style: str = "") -> None: ...

    def history(self, turns: list[StoredTurn]) -> None: ...

    def page(self, command: str) -> None: ...


class _Aloud(_Quiet):
    """Prints what happens, as it happens."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def title(self, text: str) -> None:
        self._console.print(Text(f"\n{text}", style="bold"))

    def line(self, who: str, text: str, style: str = "") -> None:
        self._console.print(Text.assemble((f"  {who:<15}", "cyan"), (text, style)))

    def history(self, turns: list[StoredTurn]) -> None:
        table = Table("turn", "status", "customer", "support_agent")
        for turn in turns:
            table.add_row(str(turn.number), turn.status, _text(turn.task, 0), _text(turn.messages, -1))
        self._console.print(table)

    def page(self, command: str) -> None:
        self._console.print(Text.assemble("\nSee the case in a browser:\n", (command, "bold")), soft_wrap=True)


async def _demo(out: _Quiet, folder: str) -> Report:
    with ExitStack() as stack:
        choice = choose()
        out.line("model", choice.notice)
        environment = dict(os.environ)
        if choice.kind == "local" and choice.base_url is None:
            environment[MODEL_URL] = stack.enter_context(local_server())
        url = f"sqlite:///{Path(folder, 'demo.db')}"

        out.title("1. Tell a process a fact.")
        worker = await _start(out, environment, "tell", url, FACT)
        out.line("customer", FACT)
        told = await _answer(worker)
        out.line("support_agent", told["answer"], "green")
        out.line("midturn", f"saved as checkpoint {told['checkpoint']}", "dim")

        out.title("2. Ask another process, and kill it with SIGKILL in the middle of the turn.")
        worker = await _start(out, environment, "tell", url, QUESTION)
        out.line("customer", QUESTION)
        await _line(worker)
        os.kill(worker.pid, signal.SIGKILL)
        out.line(f"process {worker.pid}", f"killed (exit code {await worker.wait()}), before the answer", "red")

        out.title("3. A third process finds the turn and finishes it, from memory.")
        worker = await _start(out, environment, "finish", url)
        finished = await _answer(worker)
        out.line("support_agent", finished["answer"], "bold green")
        out.line("midturn", f"saved as checkpoint {finished['checkpoint']}", "dim")

        out.title("4. The control: a process without that store gets the same question.")
        worker = await _start(out, environment, "tell", "memory://", QUESTION)
        out.line("customer", QUESTION)
        control = (await _answer(worker))["answer"]
        knew = KEYWORD in control.lower()
        out.line("support_agent", control, "yellow")
        out.line("", "It guessed right, by luck." if knew else "It cannot know.", "dim")

        out.title(f"The history of {CASE}:")
        async with midturn.open(url) as store:
            turns = [turn async for turn in SessionReader(store.store, CASE).history()]
        out.history(turns)
        out.page(shlex.join([*_program(), "web", "--store", url, "--session", CASE]))
    return Report(
        model=choice.model,
        answer=finished["answer"],
        remembered=KEYWORD in finished["answer"].lower(),
        control_answer=control,
        control_knew=knew,
        history=[turn_json(turn) for turn in turns],
    )


async def _start(out: _Quiet, environment: dict[str, str], *arguments: str) -> asyncio.subprocess.Process:
    worker = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "midturn.demo.worker",
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out.line(f"process {worker.pid}", "started", "dim")
    return worker


async def _line(worker: asyncio.subprocess.Process) -> dict[str, Any]:
    """Return the next line of the worker."""
    line = await worker.stdout.readline() if worker.stdout is not None else b""
    if not line:
        problem = await worker.stderr.read() if worker.stderr is not None else b""
        last = problem.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise MidturnError(f"a process of the demo ended without an answer: {last[0]}")
    said: dict[str, Any] = json.loads(line)
    return said


async def _answer(worker: asyncio.subprocess.Process) -> dict[str, Any]:
    """Wait until the worker ends, and return its answer."""
    while (said := await _line(worker))["event"] != "done":
        pass
    await worker.wait()
    return said


def _program() -> list[str]:
    """Return the words that start the command line in this shell."""
    if shutil.which("midturn") is not None:
        return ["midturn"]
    return [sys.argv[0]] if Path(sys.argv[0]).name == "midturn" else [sys.executable, "-m", "midturn"]


def _text(messages: Any, index: int) -> str:
    return str(messages[index].get("content", "")) if messages else ""
