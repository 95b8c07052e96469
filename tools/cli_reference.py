"""Write docs/reference/cli.md from the commands' help. A test fails if the page is out of date."""

from collections.abc import Iterator
from pathlib import Path

import click

from midturn.cli import main as midturn

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
WIDTH = 100

INTRODUCTION = """\
<!-- Written by tools/cli_reference.py: change that file or the commands' help, and run it again. -->

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

* **The store** is `--store URL`, else `$MIDTURN_URL`, else `sqlite:///midturn.db`. Commands that only read never create
  a store.
* **Answers** and tables go to stdout, everything else goes to stderr. `midturn chat ... > answer.txt` writes only the
  answer to the file.
* **Errors** say what to do next. If a command helps, they end with it.
* **With `--json`** stdout has one JSON value. If `chat` reads tasks from a pipe, stdout has one line for each turn. An
  error is an object on stderr: `{"error": {"type": "SessionBusy", "message": "...", "session": "case-42"}}`.
* **Ctrl-C or SIGTERM** cancels a turn of `chat`. The session is then as it was before the turn, and `midturn resume`
  tries the turn again. A second Ctrl-C ends the process at once, like a crash. The next turn or `midturn resume` then
  finishes the interrupted turn first.
* **A turn that needs an answer from a human** asks at a terminal. Without a terminal, the command prints the questions,
  stores the turn as `waiting`, and ends with exit code 0. With `--json`, they are in `questions`.
  `midturn answer` answers from any process.
* **Control characters** in texts of agents, tools and users are shown as text such as `\\x1b`.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | an error, or a turn that failed or took too long |
| 2 | wrong usage: an argument, an option or a URL; or an APP that cannot be loaded |
| 3 | no such store, session, turn or checkpoint; or the session was deleted |
| 4 | another worker holds the session, or its turn waits for an answer |
| 130 | stopped by Ctrl-C (143: by SIGTERM) |
"""


def render() -> str:
    """Return the page."""
    root = click.Context(midturn, info_name="midturn", terminal_width=WIDTH, **midturn.context_settings)
    parts = [INTRODUCTION]
    for name, command in commands(midturn):
        context = click.Context(command, info_name=name, parent=root, terminal_width=WIDTH)
        parts.append(f"## midturn {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(parts)


def commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group and their names, and those of nested groups."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", found) for inner, found in commands(command))
        else:
            yield name, command


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
