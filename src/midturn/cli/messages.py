"""Print AutoGen's messages for people."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.text import Text

from midturn.cli.output import clean, console, line, say
from midturn.record.odd import stored

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Said:
    """A speaker and a text. ``aside`` marks a text that is not for the reader: a tool call, its result, a thought."""

    who: str
    text: str
    aside: bool

    def as_text(self) -> Text:
        """Return the whole text."""
        return self._styled(clean(self.text))

    def as_line(self) -> Text:
        """Return the text as one line, shortened."""
        return self._styled(line(self.text))

    def _styled(self, text: str) -> Text:
        name, style = ("dim cyan", "dim") if self.aside else ("bold cyan", "")
        return Text.assemble((f"{line(self.who)}: ", name), (text, style))


def said(message: Any) -> Said:
    """Return who says what in a dumped message."""
    match message:
        case {"type": str(kind), "source": str(who), "content": content}:
            return Said(who, text_of(content), kind.endswith("Event"))
        case _:
            return Said("?", text_of(message), aside=False)


def text_of(content: Any) -> str:
    """Return the content of a message, of any kind, as text."""
    match content:
        case str():
            return content
        case {"name": name, "arguments": arguments}:
            return f"{name}({arguments})"
        case {"name": name, "content": result, "call_id": _}:
            return f"{name} returned {result}"
        case {"data": str(), **rest} if not rest:
            return "[image]"
        case [*parts] if parts:
            return "\n".join(text_of(part) for part in parts)
        case _:
            return json.dumps(stored(content, "$"), ensure_ascii=False)


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
            self._console.print(found.as_line(), soft_wrap=True)
        else:
            self._words.print(found.as_text())
            self._words.end()

    def _add(self, chunk: Said) -> None:
        if chunk.who != self._speaker:
            self.end()
            self._words.print(Said(chunk.who, "", aside=False).as_text())
            self._speaker = chunk.who
        self._streamed += chunk.text
        self._words.print(Text(clean(chunk.text)))
