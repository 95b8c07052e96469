"""Accounts of what the workers of ``durable_cast.py`` really did, and of its records."""

import json
from collections import Counter
from pathlib import Path

from midturn.history.checkpoints import read_bodies
from midturn.journal.recorded import digest, read
from midturn.lease.ledger import Ledger

CODE = "execute_code_blocks"


def named(tool, arguments):
    """A call of a tool as it stands in the ledger."""
    return f"{tool} {''.join(arguments['code']) if tool == CODE else arguments['what']}"


def lines_of(ledger):
    """Return the lines of a ledger; none if there is no ledger yet."""
    path = Path(ledger)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def made(lines):
    """Count how often each call was made."""
    return Counter((line["what"], line["id"]) for line in lines)


def decided(question, lines):
    """Answer about a call in doubt, as somebody who can look at what was really done."""
    call = named(question["tool"], question["arguments"])
    done = [line["result"] for line in lines if (line["what"], line["id"]) == ("tool", call)]
    return f"done: {done[0]}" if done else "retry"


async def completed(store, session):
    """The completed calls of the last turn in their recorded order, as they stand in the ledger."""
    ledger = Ledger(store, session)
    await ledger.refresh()
    progress = ledger.progress
    bodies = await read_bodies(ledger, progress.bodies)
    found = []
    for entry in (await read(ledger, progress.journal, progress.calls, bodies, born=0.0)).entries:
        row, value = entry.row, entry.value
        if row.what == "model":
            found.append(("model", value["usage"]["prompt_tokens"]))
        elif row.what in ("tool", "code") and not row.name.startswith("transfer"):
            found.append(("tool", named(row.name, json.loads(row.about))))
        elif row.what == "memory":
            found.append(("memory", value["results"][0]["content"]))
        elif row.what == "human" and row.path.endswith("approval_func"):
            found.append(("human", row.key))
    return found


def approval(code):
    """Return the ledger's name for the approval of a piece of code."""
    return digest(code)


def check_lines(lines):
    """See that no call was made more often than it may be, whoever was killed when."""
    keys, unsafe, by = {}, set(), set()
    for line in lines:
        call = line["what"], line["id"]
        assert (call, line["pid"]) not in by, "a call was made twice by one worker"
        by.add((call, line["pid"]))
        if line.get("effect") == "unsafe":
            assert call not in unsafe, "an unsafe call was repeated"
            unsafe.add(call)
        if "key" in line:
            assert keys.setdefault(call, line["key"]) == line["key"], "a repeated call had another key"
    assert len(set(keys.values())) == len(keys), "two calls had the same key"
