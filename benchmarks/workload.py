"""The turns that all contenders run. They are the same for the same seed, and need no package."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from benchmarks.texts import text

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 7
Shape = Literal["chat", "tools", "team", "images"]
"""The shape of turns: one agent, one that calls a tool in every other turn, four that answer one after the other, or
one that gets pictures."""
SHAPES: tuple[Shape, ...] = get_args(Shape)
AGENTS = ("intake", "policy", "payout", "closing")
"""The agents of a team, in their order."""
TYPICAL = 700
"""Median number of characters in a text. A few texts are very long, as in mail."""
PICTURE = 20_000
"""Approximate bytes of a picture."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, and its result."""

    id: str
    tool: str
    arguments: dict[str, str]
    result: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A task, the call of a tool before the answers, and one answer for each agent."""

    question: str
    picture: bytes
    """A PNG, or empty."""
    call: ToolCall | None
    answers: tuple[str, ...]

    @property
    def raw_bytes(self) -> int:
        """Return the bytes of all texts, each counted once, without any format."""
        said = [self.question, *self.answers]
        if self.call:
            said += [self.call.tool, *self.call.arguments, *self.call.arguments.values(), self.call.result]
        return len(self.picture) + sum(len(item.encode()) for item in said)

    @property
    def messages(self) -> int:
        """Return the number of messages: the task, a call and its result, and the answers."""
        return 1 + 2 * bool(self.call) + len(self.answers)


def turns(shape: Shape, first: int, last: int) -> Iterator[Turn]:
    """Yield the turns from number ``first`` (counted from 0) up to, but not including, ``last``."""
    for number in range(first, last):
        chance = random.Random(f"{SEED} {shape} {number}")
        call = None
        if shape == "tools" and number % 2:
            arguments = {"order": f"A-{chance.randint(10_000, 99_999)}", "reason": text(_length(chance) // 8, chance)}
            call = ToolCall(f"call_{number}", "look_up", arguments, text(_length(chance), chance))
        yield Turn(
            question=text(_length(chance), chance),
            picture=_png(chance) if shape == "images" and number % 10 == 0 else b"",
            call=call,
            answers=tuple(text(_length(chance), chance) for _ in (AGENTS if shape == "team" else AGENTS[:1])),
        )


def _length(chance: random.Random) -> int:
    return min(8_000, max(20, int(chance.lognormvariate(0, 0.8) * TYPICAL)))


def _png(chance: random.Random) -> bytes:
    """Return a picture of noise, which cannot be compressed."""
    side = int((PICTURE / 3) ** 0.5)
    lines = b"".join(b"\0" + chance.randbytes(3 * side) for _ in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
