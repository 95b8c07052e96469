"""Run with Microsoft Agent Framework, without midturn: continue each exported agent, and print what its model saw.

Its standard input is an export; each agent is asked, and answers with the tool results that it finds in its history.
"""

import asyncio
import json
import logging
import sys

from agent_framework import Agent, AgentSession, BaseChatClient, ChatResponse, Message

logging.disable(logging.WARNING)


class Recalling(BaseChatClient):
    """A model that answers with every tool result that it is shown."""

    def _inner_get_response(self, *, messages, **_):
        self.seen = [
            [message.role, message.author_name, [content.to_dict() for content in message.contents]]
            for message in messages
        ]
        results = [
            each["result"] for *_, contents in self.seen for each in contents if each["type"] == "function_result"
        ]

        async def reply():
            return ChatResponse(messages=[Message("assistant", [f"I was told: {', '.join(results)}"])])

        return reply()


async def main():
    found = {}
    exported = json.load(sys.stdin)
    for name, document in (exported["agents"] | exported["threads"]).items():
        client = Recalling()
        agent = Agent(client, name="heir", instructions="Continue.")
        session = AgentSession.from_dict(document)
        answer = await agent.run("What were you told?", session=session)
        json.dumps(session.to_dict())
        found[name] = {"answer": answer.text, "seen": client.seen, "session": session.session_id}
    print(json.dumps(found))


asyncio.run(main())
