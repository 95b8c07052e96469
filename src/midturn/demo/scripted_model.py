"""The demo's scripted model: it derives its answers from the messages by rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from autogen_core.models import LLMMessage, UserMessage

from midturn.testing.scripted_model import ScriptedModel, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

UNKNOWN = "I do not know: nothing in this conversation says so."

_PREFIX = re.compile(r"^(?:please )?(?:remember|noted)\b(?: that)?[:,]?\s*", re.IGNORECASE)
_PREFERENCE = re.compile(r"^(?P<who>.+?) (?:also )?prefers (?P<what>.+)$", re.IGNORECASE)
_NO_TOPIC = frozenset(
    {"about", "customer", "does", "have", "know", "remember", "tell", "that", "told", "what", "which"}
)


def recall(messages: Sequence[LLMMessage]) -> str:
    """Answer a question from the facts that the user stated before, and acknowledge anything else."""
    said = [text_of(message) for message in messages if isinstance(message, UserMessage)]
    last = said[-1].strip() if said else ""
    if not last.endswith("?"):
        return f"Noted: {'; '.join(_facts(last)) or last.rstrip('.')}."
    topics = _topics(last)
    found = [fact for text in said for fact in _facts(text) if not topics or topics & _topics(fact)]
    return _sentences(found) or UNKNOWN


class ScriptedChatCompletionClient(ScriptedModel):
    """A scripted model that answers by :func:`recall`."""

    def __init__(self, *, delay: float = 0.0) -> None:
        super().__init__(recall, delay=delay)


def _facts(text: str) -> list[str]:
    """Return the facts and preferences that the text states, without "Remember that"."""
    sentences = [sentence.strip() for sentence in re.split(r"(?<=[.!?])\s+|\n", text)]
    return [
        _PREFIX.sub("", sentence).rstrip(".! ")
        for sentence in sentences
        if not sentence.endswith("?") and (_PREFIX.match(sentence) or _PREFERENCE.match(sentence))
    ]


def _topics(text: str) -> set[str]:
    """Return the words that carry the meaning. Words for channel, contact and preference count as one topic."""
    words: set[str] = set(re.findall(r"[a-z]{4,}", text.lower())) - _NO_TOPIC
    return {"prefer" if word.startswith(("channel", "contact", "prefer", "reach")) else word for word in words}


def _sentences(facts: Sequence[str]) -> str:
    """Return the facts as prose. Preferences of the same person become one sentence."""
    wishes: dict[str, list[str]] = {}
    others: list[str] = []
    for fact in dict.fromkeys(facts):
        preference = _PREFERENCE.match(fact)
        if preference is None:
            others.append(fact)
            continue
        known = wishes.setdefault(preference["who"].lower(), [])
        known[:] = [what for what in known if what not in preference["what"]] + [preference["what"]]
    joined = [f"{who} prefers {', and '.join(what)}" for who, what in wishes.items()]
    return " ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in joined + others)
