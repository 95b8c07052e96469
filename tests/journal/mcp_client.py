"""A clerk with the tools of a real MCP server; run as a program, one that pays and dies of it."""

import asyncio
import os
import sys
from pathlib import Path

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import FunctionExecutionResultMessage, UserMessage
from autogen_ext.tools.mcp import McpWorkbench, StdioServerParams
from scripted import Scripted, calls, remembered

import midturn

SERVER = Path(__file__).with_name("mcp_server.py")


def server(ledger, *victim):
    """Return how the server is started."""
    return StdioServerParams(command=sys.executable, args=[str(SERVER), str(ledger), *map(str, victim)])


def asks_for(*script):
    """A model that asks for calls, round by round and in each turn: ``["pay A1", "pay B2"], ["pay C3"]``."""

    def answer(messages):
        turns = sum(isinstance(message, UserMessage) for message in messages)
        rounds = sum(isinstance(message, FunctionExecutionResultMessage) for message in messages)
        rounds -= (turns - 1) * len(script)
        if rounds >= len(script):
            return remembered(messages)
        wanted = [call.split() for call in script[rounds]]
        return calls(*((name, f'{{"order": "{order}"}}') for name, order in wanted))

    return answer


def clerk(answer, workbench):
    return AssistantAgent("clerk", Scripted(answer), workbench=workbench, max_tool_iterations=5)


async def main(url, ledger):
    bench = McpWorkbench(server(ledger, os.getpid()))
    async with midturn.open(url) as store:
        await store.session("case", lambda: clerk(asks_for(["pay A1"]), bench)).run(task="go")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
