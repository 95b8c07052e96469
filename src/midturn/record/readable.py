"""Values as text for people who decide: every argument is there, and nothing in it is invisible."""

from __future__ import annotations

import re
from typing import Any
from unicodedata import category

from midturn.record.codec import is_array, is_object
from midturn.record.digests import shown

LONGEST = 200
"""Number of characters after which a text inside the arguments of a call is shortened."""
MOST = 50
"""Number of items after which a list inside the arguments of a call is shortened. Items with keys stay."""

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters other than tab and newline
    "\u00ad\u034f\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00016fe4\U0001bca0-\U0001bca3"
    "\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # all of these are without width or ink
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # direction of the text, and other line ends
    "\ud800-\udfff]"  # half a character
)
_SPELLING = ("Lo", "Lm", "Mc", "Mn")
"""Kinds of characters of scripts that are written with joiners, and of CJK, which has variants."""
_DRAWN = ("So", "Sk", "Sm", "Po")
"""Kinds of characters that emoji are made of."""


def visible(text: str) -> str:
    """Return a text in which characters that nobody sees, or that change the direction, are shown as escapes.

    Joiners and variation selectors stay as they are where scripts and emoji need them: one after a character that it
    can change.
    """

    def escaped(found: re.Match[str]) -> str:
        if _is_needed(found.group(), text[found.start() - 1 : found.start()]):
            return found.group()
        return found.group().encode("unicode_escape").decode()

    return _UNSEEN.sub(escaped, text)


def _is_needed(unseen: str, before: str) -> bool:
    """Return whether an unseen character changes how the character before it is drawn. A second one hides a message."""
    if before == "\ufe0f":
        return unseen == "\u200d"  # between the parts of an emoji
    if before.isascii() or "\u0300" <= before <= "\u036f" or _UNSEEN.match(before):  # accents of Latin letters
        return False
    kind = category(before)
    if unseen in "\u200c\u200d":
        return kind in (*_SPELLING, "So", "Sk")
    if unseen in "\ufe0e\ufe0f":
        return kind in _DRAWN
    return kind == "Lo" and unseen in "\ufe00\ufe01\ufe02"


def readable(value: Any, *, brief: bool = False) -> str:
    """Return a value as JSON for people to read. Long texts and lists are shortened with a mark, keys never are.

    ``brief`` is for a record beside the value itself: a long list is shortened there whatever its items are.
    """
    return visible(shown(_short(value, brief=brief)))


def readable_call(name: str, arguments: Any, *, brief: bool = False) -> str:
    """Return a call for people to read, with all of its arguments."""
    return f"{name}({readable(arguments, brief=brief)})"


def _short(value: Any, *, brief: bool) -> Any:
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:LONGEST]}… [{len(value):,} characters]"
    if is_object(value):
        return {key: _short(item, brief=brief) for key, item in value.items()}
    if is_array(value):
        kept = [item for item in value[MOST:] if not brief and (is_object(item) or is_array(item))]
        left_out = len(value) - MOST - len(kept)
        more = [f"… [{left_out:,} more of {len(value):,} items]"] if left_out > 0 else []
        return [*(_short(item, brief=brief) for item in [*value[:MOST], *kept]), *more]
    return value
