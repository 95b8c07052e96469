"""Sealed sessions whose keys stay in a key management service, here the transit engine of a Vault server."""

import base64
import os

import httpx
from autogen_agentchat.agents import AssistantAgent

import midturn
from midturn.demo.scripted_model import ScriptedChatCompletionClient


class Transit:
    """A midturn.KeyService: it wraps the data key of each session with a named key, which never leaves the service."""

    def __init__(self, address: str, token: str, name: str) -> None:
        self._client = httpx.AsyncClient(base_url=f"{address}/v1/transit/", headers={"X-Vault-Token": token}, timeout=5)
        self._name = name

    async def wrap(self, data_key: bytes, context: str) -> tuple[str, bytes]:
        """Encrypt a data key with the newest version of the key."""
        data = await self._ask("encrypt", {"plaintext": _text(data_key)}, context)
        wrapped: str = data["ciphertext"]  # vault:v3:...
        return f"{self._name}.{wrapped.split(':')[1]}", wrapped.encode()

    async def unwrap(self, key_id: str, wrapped: bytes, context: str) -> bytes:  # noqa: ARG002 - as midturn calls it
        """Return the data key. The wrapped one names its version itself, so the id of the key is not needed."""
        data = await self._ask("decrypt", {"ciphertext": wrapped.decode()}, context)
        return base64.b64decode(data["plaintext"])

    async def close(self) -> None:
        """Close the connections. midturn does not: it has not opened them."""
        await self._client.aclose()

    async def _ask(self, what: str, question: dict[str, str], context: str) -> dict[str, str]:
        answer = await self._client.post(
            f"{what}/{self._name}", json=question | {"associated_data": _text(context.encode())}
        )
        if answer.status_code in (400, 404):  # no such key, a version that was retired, or a text of another session
            raise LookupError("the service does not open it")
        answer.raise_for_status()  # anything else means: not now
        return answer.json()["data"]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def build() -> AssistantAgent:
    """Make the agent."""
    return AssistantAgent("support_agent", ScriptedChatCompletionClient())


keys = Transit(
    os.environ.get("VAULT_ADDR", "http://127.0.0.1:8200"),
    os.environ.get("VAULT_TOKEN", ""),
    os.environ.get("KEY_NAME", "midturn"),
)
support = midturn.Blueprint("support", build)
