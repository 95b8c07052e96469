"""AutoGen's chess game, made durable: two players, a board, and a process that may be killed after any move.

The board has four files and five ranks, and nothing but pawns, so that the rules fit on a page. White begins. The
side that reaches the last rank wins, and so does the side that leaves the other without a move.

    python pawns.py          two scripted players
    python pawns.py human    you are white; type moves such as a1a2
"""

import asyncio
import os
import sys
from collections.abc import Sequence

from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent, Team  # noqa: TC002 - an example reads better without a block for types
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import LLMMessage

import midturn
from midturn.testing import ScriptedModel, ToolCall
from midturn.testing.scripted_model import text_of

FILES, RANKS = "abcd", 5
STEP = {"white": 1, "black": -1}


# 1. The rules.


def board(moves: Sequence[str]) -> dict[str, str]:
    """Return the owners of the squares after these moves."""
    squares = {f"{file}{rank}": side for rank, side in ((1, "white"), (RANKS, "black")) for file in FILES}
    for move in moves:
        squares[move[2:]] = squares.pop(move[:2])
    return squares


def turn(moves: Sequence[str]) -> str:
    return "white" if len(moves) % 2 == 0 else "black"


def legal(moves: Sequence[str]) -> list[str]:
    """Return the moves of the side whose turn it is."""
    squares, side, found = board(moves), turn(moves), []
    for square in sorted(square for square, owner in squares.items() if owner == side):
        file, rank = FILES.index(square[0]), int(square[1]) + STEP[side]
        for aside in (-1, 0, 1):
            if 0 <= file + aside < len(FILES) and 1 <= rank <= RANKS:
                to = f"{FILES[file + aside]}{rank}"
                if (squares.get(to) not in (None, side)) if aside else to not in squares:
                    found.append(square + to)
    return found


def winner(moves: Sequence[str]) -> str | None:
    last = "black" if turn(moves) == "white" else "white"
    return last if not legal(moves) or (moves and moves[-1][3] in (f"{RANKS}", "1")) else None


# 2. The tools. The moves are rows in the store's own database: a move and the record of its call are one transaction.


async def played() -> list[str]:
    await midturn.transaction().execute("CREATE TABLE IF NOT EXISTS moves (n INTEGER PRIMARY KEY, move TEXT)")
    return [row[0] for row in await midturn.transaction().execute("SELECT move FROM moves ORDER BY n")]


@midturn.tool(effect="transactional")
async def look() -> str:
    """Look at the board."""
    moves = await played()
    return f"{turn(moves)} to move: {' '.join(legal(moves))}"


@midturn.tool(effect="transactional")
async def move(move: str) -> str:
    """Make a move, such as a1a2."""
    moves = await played()
    if move not in legal(moves):
        return f"{move} is not legal. {turn(moves)} to move: {' '.join(legal(moves))}"
    await midturn.transaction().execute("INSERT INTO moves VALUES (?, ?)", (len(moves) + 1, move))
    won = winner([*moves, move])
    return f"moved {move}" + (f", and {won} wins" if won else "")


# 3. The players. A script stands for the models; put your own there.


def scripted(side: str) -> ScriptedModel:
    def play(messages: Sequence[LLMMessage]) -> str | ToolCall:
        last = text_of(messages[-1])
        if last.startswith("moved"):
            return f"{side} {last}."
        if "to move" in last:
            return ToolCall("move", {"move": last.split()[-1]}) if f"{side} to move" in last else f"{side} waits."
        return ToolCall("look")

    return ScriptedModel(play, delay=float(os.environ.get("MODEL_SECONDS", "0")))


def obedient() -> ScriptedModel:
    """Return a model that moves for the human who spoke before it."""

    def play(messages: Sequence[LLMMessage]) -> str | ToolCall:
        last = text_of(messages[-1])
        done = last.startswith("moved") or "legal" in last
        return f"white {last}." if done else ToolCall("move", {"move": last.strip()})

    return ScriptedModel(play)


def build() -> RoundRobinGroupChat:
    human = "human" in sys.argv
    white = AssistantAgent(
        "white", obedient() if human else scripted("white"), tools=[look, move], max_tool_iterations=3
    )
    black = AssistantAgent("black", scripted("black"), tools=[look, move], max_tool_iterations=3)
    players: list[ChatAgent | Team] = [white, black]
    if human:
        players.insert(0, UserProxyAgent("you", input_func=midturn.human))
    return RoundRobinGroupChat(players, termination_condition=TextMentionTermination("wins"))


# 4. The game is one turn of one session. The same key finishes it, or returns its result.


async def main() -> None:
    async with midturn.open() as store:
        case = store.session("game", build)
        stream = case.run_stream(task="Play.", key="game")
        while stream is not None:
            following = None
            async for item in stream:
                if not isinstance(item, midturn.TurnResult):
                    if isinstance(item, TextMessage) and item.source in STEP and not midturn.replayed(item):
                        print(item.to_text(), flush=True)
                elif item.waiting:
                    print("Your move: ", end="", flush=True)
                    if (line := sys.stdin.readline()) == "":
                        return  # the game waits until you come back
                    following = case.answer_stream(line.strip(), question=item.waiting.id, by="you")
                else:
                    print(f"The game is over: {item.messages[-1].to_text()}")
            stream = following


if __name__ == "__main__":
    asyncio.run(main())
