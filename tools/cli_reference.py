"""Writes docs/reference/cli.md from what the commands say of themselves. A test fails while the page is stale."""

from collections.abc import Iterator
from pathlib import Path

import click

from midturn.cli import main as midturn

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
WIDTH = 100

INTRODUCTION = """\
<!-- Written by tools/cli_reference.py; change that, or the commands' help, and run it again. -->

# The command line

```console
$ midturn chat app:support case-42 "Remember that the customer prefers email."
support_agent: Noted: the customer prefers email.
saved as checkpoint 1; continue: midturn chat app:support case-42

$ midturn show case-42
turn   when               status   said                                                tokens
─────────────────────────────────────────────────────────────────────────────────────────────
   1   2026-11-15 20:50   done     user: Remember that the customer prefers email.      31+14
                                   support_agent: Noted: the customer prefers email.
```

* **The store** is `--store URL`, else `$MIDTURN_URL`, else `sqlite:///midturn.db`. Commands that only look for
  something never make a store.
* **Answers** and tables go to stdout, everything else to stderr: `midturn chat ... > answer.txt` has the answer alone.
* **With `--json`** stdout has one JSON value (a line for each turn if `chat` reads its tasks from a pipe), and an error
  is an object on stderr: `{"error": {"type": "SessionBusy", "message": "...", "session": "case-42"}}`.
* **Interrupting** a turn of `chat`, with Ctrl-C or SIGTERM, cancels it: the session is as it was before the turn, and
  `midturn resume` tries it again. A second Ctrl-C ends the process at once; if the turn was not cancelled by then, it
  counts as crashed, and the next turn or `midturn resume` finishes it first.
* **A turn that needs an answer from a human** asks at a terminal. Elsewhere its questions are printed, it is stored as
  `waiting`, and the exit code is 0; with `--json` they are in `waiting`. `midturn answer` goes on from any process.
* **Control characters** in what agents, tools and users said are shown as text such as `\\x1b`.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | an error, or a turn that failed |
| 2 | wrong usage, or an APP that cannot be loaded |
| 3 | no such store, session or checkpoint |
| 4 | another worker holds the session, or its turn waits for an answer |
| 130 | interrupted by Ctrl-C (143: by SIGTERM) |
"""


def render() -> str:
    """The page."""
    root = click.Context(midturn, info_name="midturn", terminal_width=WIDTH, **midturn.context_settings)
    parts = [INTRODUCTION]
    for name, command in commands(midturn):
        context = click.Context(command, info_name=name, parent=root, terminal_width=WIDTH)
        parts.append(f"## midturn {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """The commands and their names, also those of groups inside it."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", found) for inner, found in commands(command))
        else:
            yield name, command


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
