"""A model for the example. It needs no key, each reply is different, and it logs every call."""

import asyncio
import json
import os
import re
import uuid
from collections.abc import Sequence

from autogen_core.models import AssistantMessage, LLMMessage, UserMessage

from midturn.testing import ScriptedModel


async def reply(messages: Sequence[LLMMessage]) -> str:
    """Give each entry a number and a receipt, and name the receipt before it, all from the agent's memory.

    ``$MODEL_SECONDS`` is the time that it takes. ``$MODEL_LEDGER`` is a file that gets a line at the start of each
    call, so that it also has the calls of killed processes.
    """
    said = [message.content for message in messages if isinstance(message, UserMessage)]
    replies = [str(message.content) for message in messages if isinstance(message, AssistantMessage)]
    before = re.findall(r"receipt (\w+)", replies[-1])[0] if replies else "none"
    text = f"Entry {len(said)}, receipt {uuid.uuid4().hex[:12]}, after {before}."
    if path := os.environ.get("MODEL_LEDGER"):
        line = json.dumps({"task": said[-1], "reply": text, "pid": os.getpid()}) + "\n"
        with open(path, "ab", buffering=0) as ledger:  # noqa: ASYNC230, PTH123 - one small write, in one piece
            ledger.write(line.encode())
    await asyncio.sleep(float(os.environ.get("MODEL_SECONDS", "0.3")))
    return text


def clerk() -> ScriptedModel:
    """Return the model."""
    return ScriptedModel(reply)
