"""Print AutoGen's messages for people."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from midturn.cli.output import clean, console, line, say
from midturn.history.spoken import Said, said
from midturn.record.odd import stored

if TYPE_CHECKING:
    from rich.console import Console


def as_text(spoken: Said) -> Text:
    """Return who says what, whole."""
    return _styled(spoken, clean(spoken.text))


def as_line(spoken: Said) -> Text:
    """Return who says what as one line, shortened."""
    return _styled(spoken, line(spoken.text))


def _styled(spoken: Said, text: str) -> Text:
    name, style = ("dim cyan", "dim") if spoken.aside else ("bold cyan", "")
    return Text.assemble((f"{line(spoken.who)}: ", name), (text, style))


def _same(message: Any) -> str:
    """Return the part of a message that stays the same when its turn is run again. It has the id."""
    shown = {name: value for name, value in message.items() if name not in ("created_at", "metadata")}
    return json.dumps(stored(shown, "$"))


PIECES = re.compile(r"\n|[^\S\n]+|\S+")
"""The words of a text, and what is between them."""


class WordWrap:
    """Prints text at a terminal piece by piece, and breaks its lines between words."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._column = 0
        self._space = ""
        """Spaces that are printed before the next word, unless that begins a line."""
        self._word = Text()
        """A word that may not be complete."""

    def print(self, text: Text) -> None:
        """Print text. Its last word follows with the next piece."""
        for found in PIECES.finditer(text.plain):
            piece = found[0]
            if not piece.isspace():
                self._word.append_text(text[found.start() : found.end()])
                continue
            self.flush()
            if piece == "\n":
                self._out.print()
                self._column, self._space = 0, ""
            else:
                self._space += piece

    def flush(self) -> None:
        """Print the last word."""
        if not self._word:
            return
        width = cell_len(self._space) + self._word.cell_len
        if self._column and self._column + width > self._out.width:
            self._out.print()
            self._column, self._space, width = 0, "", self._word.cell_len
        self._out.print(Text(self._space) + self._word, end="", soft_wrap=True)
        self._column += width
        self._space, self._word = "", Text()

    def end(self) -> None:
        """End the line."""
        self.flush()
        self._out.print()
        self._column, self._space = 0, ""


class Live:
    """Prints the messages of a turn as they arrive. Text that a model streams is printed piece by piece.

    If only the answer is wanted on stdout, it comes at the end, and all else goes to stderr.
    """

    def __init__(self, *, task: str | None = None, alone: bool = False) -> None:
        """Start without output. The reader knows the ``task``.

        ``alone`` is true if stdout gets nothing but the answer.
        """
        self._console = console(err=alone)
        self._words = WordWrap(self._console)
        self._task = task
        self._alone = alone
        self._answer: Said | None = None
        """The last message, which is the answer unless another comes."""
        self._shown = set[str]()
        """The messages that were printed, or that the reader knows. They come again when the turn runs again."""
        self._speaker = ""
        """The name of the agent whose text is being streamed."""
        self._streamed = ""
        self.heard = False
        """True after the first message."""
        self.asks = False
        """True while the agent waits for a line from the terminal."""

    def show(self, message: Any) -> None:
        """Print a message that was not printed yet."""
        kind, same = message.get("type"), _same(message)
        self.heard = True
        self.asks = kind == "UserInputRequestedEvent"
        if self.asks or same in self._shown:
            return
        self._shown.add(same)
        found = said(message)
        if (found.who, found.text) == ("user", self._task):
            self._task = None
        elif self._alone:
            self._keep(found, chunk=kind == "ModelClientStreamingChunkEvent")
        elif kind == "ModelClientStreamingChunkEvent":
            self._add(found)
        elif found.aside or not self._speaker or not self._streamed.rstrip().endswith(found.text.strip()):
            self.end()
            self._print(found)
        else:
            self.end()

    def hide(self, message: Any) -> None:
        """Note that the reader knows a message."""
        self._shown.add(_same(message))

    def end(self) -> None:
        """End the line that is being streamed."""
        if self._speaker:
            self._words.end()
        self._speaker = self._streamed = ""

    def conclude(self, *, done: bool) -> None:
        """End the output of a turn. If it is ``done``, its last message is the answer."""
        self.end()
        answer, self._answer = self._answer, None
        if answer is not None and done:
            say(answer.text)
        elif answer is not None:
            self._print(answer)

    def _keep(self, found: Said, *, chunk: bool) -> None:
        """Print what is not the answer: a message is the answer only if no other follows."""
        if chunk:
            return
        last = found if found.aside else self._answer
        if last is not None:
            self._print(last)
        if not found.aside:
            self._answer = found

    def _print(self, found: Said) -> None:
        if found.aside:
            self._console.print(as_line(found), soft_wrap=True)
        else:
            self._words.print(as_text(found))
            self._words.end()

    def _add(self, chunk: Said) -> None:
        if chunk.who != self._speaker:
            self.end()
            self._words.print(as_text(Said(chunk.who, "", aside=False)))
            self._speaker = chunk.who
        self._streamed += chunk.text
        self._words.print(Text(clean(chunk.text)))
