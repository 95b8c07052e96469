"""A bank as a real MCP server over stdio: ``mcp_server.py LEDGER [VICTIM]``. Its tools write down what they do.

A payment takes the process with the id ``VICTIM`` with it, after the money has gone.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent

LEDGER, VICTIM = Path(sys.argv[1]), [int(pid) for pid in sys.argv[2:]]

bank = FastMCP("bank", log_level="ERROR")


def write(line):
    with LEDGER.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{line}\n")


@bank.tool()
def pay(order: str) -> str:
    """Pay an order."""
    write(f"pay {order}")
    for pid in VICTIM:
        os.kill(pid, signal.SIGKILL)
    return f"paid {order}"


@bank.tool()
async def wait(order: str) -> str:
    """Wait until there is a file that is named after the order."""
    write(f"wait {order}")
    while not LEDGER.with_name(order).exists():  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.01)
    return f"waited for {order}"


@bank.tool()
async def judge(order: str, context: Context) -> str:
    """Ask the model of whoever calls."""
    write(f"judge {order}")
    question = SamplingMessage(role="user", content=TextContent(type="text", text=f"is {order} right?"))
    answer = await context.session.create_message([question], max_tokens=10)
    return f"judged {order}: {answer.content.text}"


if __name__ == "__main__":
    bank.run()
