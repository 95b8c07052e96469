"""Choose the model of the demo and the tutorial: OpenAI's, a small one on this machine, or a scripted one.

=========================== ============================================================================
``MIDTURN_DEMO_MODEL_URL``  base URL of a local server that already runs, so that processes can share one
``OPENAI_API_KEY``          use OpenAI, or what ``OPENAI_BASE_URL`` names
``MIDTURN_DEMO_MODEL``      the model to ask for there
``MIDTURN_DEMO_MODEL_KIND`` ``openai``, ``local`` or ``scripted``: use this one and no other
=========================== ============================================================================
"""

from __future__ import annotations

import os
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from autogen_core.models import ChatCompletionClient, ModelFamily, ModelInfo

from midturn.demo.local_server import INSTALL, MODEL, available, local_server
from midturn.demo.scripted_model import ScriptedChatCompletionClient
from midturn.errors import MidturnError, MissingExtra

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

# With these words the small model answers from the facts in its context, and from nothing else. They were measured: if
# you change one, the answer may be wrong. The model uses only the latest fact, so QUESTION belongs before SECOND_FACT
# and URGENT_QUESTION after it.
SYSTEM_MESSAGE = (
    "You are a support agent who keeps notes about a customer. "
    "Repeat the facts you were told. Answer in one short sentence."
)
FACT = "Remember: the customer prefers email."
SECOND_FACT = "Remember: the customer also prefers SMS for urgent updates."
QUESTION = "Which channel does the customer prefer?"
URGENT_QUESTION = "Which channel does the customer prefer for urgent updates?"

MODEL_URL = "MIDTURN_DEMO_MODEL_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A model to use. ``notice`` tells people which model it is, and why."""

    kind: Literal["openai", "local", "scripted"]
    model: str
    base_url: str | None
    notice: str


def choose() -> Choice:
    """Return the model that the environment asks for, else the most real one that works without a key.

    Raises:
        MidturnError: ``MIDTURN_DEMO_MODEL_KIND`` names a kind that does not exist or cannot be used here.
    """
    forced = os.environ.get("MIDTURN_DEMO_MODEL_KIND")
    if forced not in (None, "", "openai", "local", "scripted"):
        raise MidturnError(f"MIDTURN_DEMO_MODEL_KIND is {forced!r}; it can be openai, local or scripted")
    if forced == "scripted":
        return _scripted("MIDTURN_DEMO_MODEL_KIND asks for it")
    if forced != "openai" and (url := os.environ.get(MODEL_URL)):
        return _local(url)
    if forced != "local" and os.environ.get("OPENAI_API_KEY"):
        return _openai()
    if forced == "openai":
        raise MidturnError("MIDTURN_DEMO_MODEL_KIND is openai, but OPENAI_API_KEY is not set")
    reason = available()
    if reason is None or forced == "local":
        return _local(None)
    return _scripted(reason)


@asynccontextmanager
async def model_client(choice: Choice | None = None) -> AsyncGenerator[ChatCompletionClient, None]:
    """Open a client for a model, by default for the one that ``choose()`` returns.

    A server for a local model runs until the client is closed.

    Raises:
        MissingExtra: The model is reached over HTTP and AutoGen's client for that is not installed.
        MidturnError: The local model is not installed, or its server does not start.
    """
    choice = choice or choose()
    with ExitStack() as stack:
        if choice.kind == "scripted":
            client: ChatCompletionClient = ScriptedChatCompletionClient(delay=0.5)  # about what the small model takes
        elif choice.kind == "local":
            client = _http_client(choice, choice.base_url or stack.enter_context(local_server()))
        else:
            client = _http_client(choice, choice.base_url)
        try:
            yield client
        finally:
            await client.close()


def _http_client(choice: Choice, base_url: str | None) -> ChatCompletionClient:
    try:
        from autogen_ext.models.openai import OpenAIChatCompletionClient
        from openai import DefaultAsyncHttpxClient
    except ImportError as error:
        raise MissingExtra("openai", f"the {choice.kind} model needs AutoGen's OpenAI client") from error
    able = choice.kind == "openai"
    settings: dict[str, Any] = {
        "model": choice.model,
        "model_info": ModelInfo(
            vision=able, function_calling=able, json_output=able, structured_output=able, family=ModelFamily.UNKNOWN
        ),
    }
    if base_url is not None:
        settings["base_url"] = base_url
    if choice.kind == "local":
        # A proxy that the environment names cannot reach this machine's loopback interface.
        direct = DefaultAsyncHttpxClient(trust_env=False)
        settings |= {"api_key": "local", "temperature": 0.0, "max_tokens": 48, "http_client": direct}
    return OpenAIChatCompletionClient(**settings)


def _openai() -> Choice:
    model = os.environ.get("MIDTURN_DEMO_MODEL") or "gpt-4o-mini"
    base_url = os.environ.get("OPENAI_BASE_URL") or None
    notice = f"The model is {model} at {base_url or 'OpenAI'}, because OPENAI_API_KEY is set."
    return Choice(kind="openai", model=model, base_url=base_url, notice=notice)


def _local(base_url: str | None) -> Choice:
    notice = f"The model is {MODEL}, a small real one that runs on this machine and needs no key."
    return Choice(kind="local", model=MODEL, base_url=base_url, notice=notice)


def _scripted(reason: str) -> Choice:
    lines = "".join(f"\n    {line}" for line in INSTALL)
    notice = f"The answers are scripted, not a model's, because {reason}. A small real model needs no key:{lines}"
    return Choice(kind="scripted", model="scripted", base_url=None, notice=notice)
