"""Text that looks like support mail: varied words and lengths, the same for the same seed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

LETTERS = Path(__file__).parent / "letters.txt"
WORDS = """
customer order invoice refund parcel address delivery email phone account ticket agent policy claim damage receipt
payment card bank transfer morning evening urgent please thanks regarding attached photo number reference warranty
replacement broken missing late early second third again never always prefers wants needs asked answered waiting
confirmed cancelled returned shipped the a an and or but with without before after because since until for from to of
in on at by is was has been will can could should must about our your their
""".split()  # noqa: SIM905 - easier to read than a list of quoted words


def sentences() -> list[str]:
    """Return sentences of letters that people could have written to a support desk, an insurance or a hospital."""
    found: list[str] = []
    for letter in LETTERS.read_text().split("\n\n"):
        found += re.split(r"(?<=[.?!]) +", letter.strip())
    return found


def text(size: int, chance: random.Random) -> str:
    """Return ``size`` characters of sentences."""
    parts: list[str] = []
    length = 0
    while length < size:
        words = chance.choices(WORDS, k=chance.randint(5, 14))
        sentence = " ".join(words).capitalize() + f" {chance.randint(10, 99999)}. "
        parts.append(sentence)
        length += len(sentence)
    return "".join(parts)[:size]
