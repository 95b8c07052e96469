"""AutoGen's Streamlit sample, made durable. Run it with ``streamlit run streamlit_chat.py``.

Streamlit runs this file again for each thing that the user does. The conversation is in the store, so nothing has to be
in ``st.session_state``: the chat is the same after a reload, in another tab, and on another server.
"""

import asyncio
import os
import uuid

import streamlit as st  # pyright: ignore[reportMissingImports] - not among the locked packages
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import TextMessage

import midturn
from midturn.testing import ScriptedModel


def build() -> AssistantAgent:
    # A scripted model, which needs no key; put your own here.
    model = ScriptedModel(
        lambda messages: f"I have {len(messages)} messages.", delay=float(os.environ.get("DELAY", "0"))
    )
    return AssistantAgent("assistant", model)


async def talk(chat: str, text: str | None) -> list[tuple[str, str]]:
    """Say something, if there is anything to say; return the conversation as pairs of a speaker and a text."""
    async with midturn.open() as store:
        case = store.session(chat, build)
        if text is None:
            await case.resume()  # finishes what a server that died has left
        else:
            await case.say(text)
        said: list[tuple[str, str]] = []
        async for turn in case.history():
            said += [(message.source, message.content) for message in turn.messages if isinstance(message, TextMessage)]
        return said


def main() -> None:
    st.title("A chat that is kept")
    chat = st.query_params.setdefault("chat", uuid.uuid4().hex)  # the address names it
    for who, what in asyncio.run(talk(chat, st.chat_input("Say something"))):
        st.chat_message(who).markdown(what)


main()
