"""The turns that everybody is measured with: the same for the same seed, and made without any package."""

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
"""One agent; one that calls a tool in every other turn; four that answer one after the other; one that is shown
pictures."""
SHAPES: tuple[Shape, ...] = get_args(Shape)
AGENTS = ("intake", "policy", "payout", "closing")
"""The agents of a team, in their order."""
TYPICAL = 700
"""Characters of a typical text; half of them are shorter. Few are very long, as in mail."""
PICTURE = 20_000
"""Bytes of a picture, about."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that is called, and what it gives."""

    id: str
    tool: str
    arguments: dict[str, str]
    result: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What is asked, the tool that is called before the answers, and the answers: one for each agent."""

    question: str
    picture: bytes
    """A PNG, or nothing."""
    call: ToolCall | None
    answers: tuple[str, ...]

    @property
    def raw_bytes(self) -> int:
        """Bytes of all that was said, once, without any form around it."""
        said = [self.question, *self.answers]
        if self.call:
            said += [self.call.tool, *self.call.arguments, *self.call.arguments.values(), self.call.result]
        return len(self.picture) + sum(len(item.encode()) for item in said)

    @property
    def messages(self) -> int:
        """How many it is made of: the question, a call and its result, the answers."""
        return 1 + 2 * bool(self.call) + len(self.answers)


def turns(shape: Shape, first: int, last: int) -> Iterator[Turn]:
    """The turns from number ``first`` (from 0) up to ``last``, which is not among them."""
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
    """A picture of noise, which cannot be made smaller."""
    side = int((PICTURE / 3) ** 0.5)
    lines = b"".join(b"\0" + chance.randbytes(3 * side) for _ in range(side))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
