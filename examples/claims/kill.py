"""Kill the worker of the claims team (SIGKILL) at every step, let another one continue, and check the bank's books.

python kill.py [STEP]            at every step, or at the steps with this name
python kill.py --blind [STEP]    the control: nobody checks the bank's books after a crash, so some claims pay twice
"""

import asyncio
import io
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple

import bank
import claims
import model
from rich.console import Console

import midturn
from midturn.record.head import Kind, Write
from midturn.stores.sqlite.store import SqliteStore

MOMENTS = ("as it begins", "as it ends", "while recorded", "once recorded")
TOOLS = ("look_up_claim", "look_up_policy", "reserve", "pay_out")
PATIENCE = 60  # seconds for a process
FORK = multiprocessing.get_context("fork")  # AutoGen is imported only once

# 1. A worker process. It does what `claims.py` does, and dies at a given step.


class Step(NamedTuple):
    """A step at which a worker can be killed."""

    command: str
    what: str
    moment: str


class Doomed:
    """A worker that logs each step in `steps.jsonl`, and dies at one of them."""

    def __init__(self, command: str, last: Step | None) -> None:
        self._command, self._last, self._called = command, last, ""

    def reach(self, what: str, moment: str) -> None:
        step = Step(self._command, what, moment)
        with Path("steps.jsonl").open("a") as steps:
            steps.write(json.dumps(step) + "\n")
        if step == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def call(self, name: Callable[..., str], make: Callable[..., Any]) -> Any:
        """Return a function that calls a tool or a model, with a step before and a step after the call."""

        @wraps(make)
        async def made(*args: Any, **options: Any) -> Any:
            self._called = name(*args)
            self.reach(self._called, "as it begins")
            result = await make(*args, **options)
            self.reach(self._called, "as it ends")
            return result

        return made

    def write(self, make: Callable[..., Any]) -> Any:
        """Return a function that writes to the store, with a step during and a step after the write."""

        async def made(store: SqliteStore, write: Write) -> Any:
            what = self._written(write)
            writing = asyncio.ensure_future(make(store, write))
            await asyncio.sleep(0)  # now SQLite is at work, in its own thread
            self.reach(what, "while recorded")
            head = await writing
            self.reach(what, "once recorded")
            return head

        return made

    def _written(self, write: Write) -> str:
        call = next((json.loads(row.data) for row in write.rows if row.kind is Kind.CALL), None)
        if write.status == "idle":
            return "the turn is committed"
        if write.status == "waiting":
            return "the question is stored"
        if call is None and write.rows:
            return "the turn is begun"
        if call is None:
            return "the turn is taken up again"
        if call["what"] == "approval":
            return "the approval is stored"
        return "pay_out is announced" if call.get("stage") == "started" else self._called


def worker(command: str, last: Step | None, *, blind: bool) -> None:
    """Run one command as a process that may die."""
    sys.stdout = io.StringIO()
    doomed = Doomed(command, last)
    claims.model_client = model.Scripted
    model.Scripted.create = doomed.call(
        lambda client, messages: f"{client.agent}: model call {client.number(messages) + 1}", model.Scripted.create
    )
    for name in TOOLS:
        setattr(claims, name, doomed.call(lambda *_, name=name, **__: name, getattr(claims, name)))
    SqliteStore.write = doomed.write(SqliteStore.write)
    if blind:
        bank.find = lambda reference: None  # noqa: ARG005 - the name is given
    code = claims.main(command)
    if code == claims.WAITS:
        doomed.reach("the claim waits", "as it begins")
    sys.exit(code)


# 2. A claim from start to end, in as many processes as it needs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a claim."""

    reservations: int
    payouts: int
    transcript: list[Any]
    steps: list[Step]
    processes: int

    def is_like(self, other: "Outcome") -> bool:
        return self.transcript == other.transcript and self.reservations == self.payouts == 1

    def model_calls(self) -> int:
        return sum("model call" in step.what and step.moment == "as it begins" for step in self.steps)


def settle(last: Step | None, *, blind: bool) -> Outcome:
    """Work on a claim until it is closed. The first process that reaches the step ``last`` is killed there."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):  # the store and the bank are here
        command, processes = "run", 1
        while (code := process(command, last, blind=blind)) != 0:
            if code == -signal.SIGKILL and last is not None:
                command, last = "run", None
            elif code == claims.WAITS:
                command = "approve"
            else:
                raise RuntimeError(f"a worker ended with {code}; its output is above")
            processes += 1
        if last is not None:
            raise RuntimeError(f"no worker reached {last}")
        reservations, payouts = bank.books()
        return Outcome(
            reservations=reservations,
            payouts=payouts,
            transcript=asyncio.run(transcript()),
            steps=[Step(*json.loads(line)) for line in Path("steps.jsonl").read_text().splitlines()],
            processes=processes,
        )


def process(command: str, last: Step | None, *, blind: bool) -> int | None:
    child = FORK.Process(target=worker, args=(command, last), kwargs={"blind": blind})
    child.start()
    child.join(PATIENCE)
    if child.exitcode is None:
        child.kill()
    return child.exitcode


async def transcript() -> list[Any]:
    """Return all messages, without the fields that differ in each run."""
    async with midturn.open() as store:
        [turn] = [turn async for turn in store.session(claims.CLAIM).history()]
    return [{**message.dump(), "id": None, "created_at": None} for message in turn.messages]


# 3. The table.


def main(*words: str) -> int:
    os.environ.pop("MIDTURN_URL", None)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    wrong, again, processes = 0, 0, 0
    attempt = partial(settle, blind="--blind" in words)
    called = [word for word in words if word != "--blind"]
    whole = attempt(None)
    steps = [step for step in whole.steps if all(word in step.what for word in called)]
    with ProcessPoolExecutor(2 * (os.cpu_count() or 1), mp_context=FORK) as pool:
        outcomes = pool.map(attempt, steps)
        console.print(f"[bold]{'payouts, if the worker is killed ...':<36}{''.join(f'{each:>16}' for each in MOMENTS)}")
        for what in dict.fromkeys(step.what for step in steps):
            console.print(f"{what:<36}", end="")
            reached = [step.moment for step in steps if step.what == what]
            for moment in MOMENTS:
                if moment not in reached:
                    console.print(f"[dim]{'-':>16}", end="")
                    continue
                outcome = next(outcomes)
                right = outcome.is_like(whole)
                console.print(f"[{'green' if right else 'bold red'}]{outcome.payouts:>16}", end="")
                wrong += not right
                again += outcome.model_calls() - whole.model_calls()
                processes += outcome.processes
            console.print()
    console.print(
        f"{len(steps)} runs, each killed once, in {processes} processes: {len(steps) - wrong} ended with\n"
        "one reservation, one payout and the transcript of the run that was not killed.\n"
        f"{again} of {len(steps) * whole.model_calls()} model calls were made again: those whose answers had not been "
        "recorded."
    )
    return 1 if wrong or not steps else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
