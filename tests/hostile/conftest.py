"""An agent whose state is whatever a test wants it to be, and stores of each kind."""

import sys
from pathlib import Path

import pytest
from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.with_name("autogen"))]


class Keeper(BaseChatAgent):
    """Answers with ``reply`` and keeps ``state``."""

    def __init__(self, state=None, reply="kept"):
        super().__init__("keeper", "It keeps what it is given.")
        self.state = state if state is not None else {}
        self.reply = reply

    @property
    def produced_message_types(self):
        return (TextMessage,)

    async def on_messages(self, messages, cancellation_token):
        if isinstance(self.reply, Exception):
            raise self.reply
        return Response(chat_message=TextMessage(content=self.reply, source=self.name))

    async def on_reset(self, cancellation_token):
        self.state = {}

    async def save_state(self):
        return self.state

    async def load_state(self, state):
        self.state = state


@pytest.fixture(scope="session")
def keeper():
    return Keeper


@pytest.fixture
def urls(tmp_path):
    """A store of each kind."""
    return {
        "memory": "memory://",
        "file": f"file://{tmp_path}/store",
        "sqlite": f"sqlite:///{tmp_path}/store.db",
    }


@pytest.fixture(params=["memory", "file", "sqlite"])
def url(request, urls):
    return urls[request.param]


@pytest.fixture(params=["file", "sqlite"])
def kept_url(request, urls):
    """A store that outlives its process."""
    return urls[request.param]
