"""A model for the example: it needs no key, no reply is like another, and it writes down each time that it is asked."""

import json
import os
import re
import uuid
from collections.abc import Sequence
from typing import Any

from autogen_core.models import AssistantMessage, CreateResult, LLMMessage, UserMessage

from midturn.demo.scripted_model import ScriptedChatCompletionClient


class Clerk(ScriptedChatCompletionClient):
    """Gives each entry a number and a receipt, and names the receipt before it, all from what the agent remembers.

    ``$MODEL_SECONDS`` is how long it thinks. ``$MODEL_LEDGER`` is a file that gets a line for each call as it begins,
    so that calls whose process was killed are in it, too.
    """

    def __init__(self) -> None:
        super().__init__(delay=float(os.environ.get("MODEL_SECONDS", "0.3")))

    async def create(self, messages: Sequence[LLMMessage], **options: Any) -> CreateResult:
        said = [message.content for message in messages if isinstance(message, UserMessage)]
        replies = [str(message.content) for message in messages if isinstance(message, AssistantMessage)]
        before = re.findall(r"receipt (\w+)", replies[-1])[0] if replies else "none"
        reply = f"Entry {len(said)}, receipt {uuid.uuid4().hex[:12]}, after {before}."
        if path := os.environ.get("MODEL_LEDGER"):
            line = json.dumps({"task": said[-1], "reply": reply, "pid": os.getpid()}) + "\n"
            with open(path, "ab", buffering=0) as ledger:  # noqa: ASYNC230, PTH123 - one small write, in one piece
                ledger.write(line.encode())
        result = await super().create(messages, **options)
        return result.model_copy(update={"content": reply})
