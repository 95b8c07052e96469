"""AutoGen's chess game, made durable: two players, a board, and a process that may be killed after any move.

pip install chess
python chess_game.py          two scripted players
python chess_game.py human    you are white; type moves such as e2e4
"""

import asyncio
import os
import sys
from collections.abc import Sequence

import chess
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent, Team  # noqa: TC002 - an example reads better without a block for types
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import LLMMessage

import midturn
from midturn.testing import ScriptedModel, ToolCall
from midturn.testing.scripted_model import text_of

SIDES = {chess.WHITE: "white", chess.BLACK: "black"}
# A game of the Sire de Légal, around 1750.
SCRIPT = ["e2e4", "e7e5", "g1f3", "d7d6", "f1c4", "c8g4", "b1c3", "g7g6", "f3e5", "g4d1", "c4f7", "e8e7", "c3d5"]


# 1. The board after some moves, and what can be said about it.


def board_after(moves: Sequence[str]) -> chess.Board:
    board = chess.Board()
    for move in moves:
        board.push_uci(move)
    return board


def state_of(board: chess.Board) -> str:
    if (outcome := board.outcome()) is not None:
        return "nobody wins" if outcome.winner is None else f"{SIDES[outcome.winner]} wins"
    legal = " ".join(sorted(move.uci() for move in board.legal_moves))
    return f"move {len(board.move_stack) + 1}, {SIDES[board.turn]} to move: {legal}"


# 2. The tools. The moves are rows in the store's own database: a move and the record of its call are one transaction.


async def played() -> list[str]:
    await midturn.transaction().execute("CREATE TABLE IF NOT EXISTS moves (n INTEGER PRIMARY KEY, move TEXT)")
    return [row[0] for row in await midturn.transaction().execute("SELECT move FROM moves ORDER BY n")]


@midturn.tool(effect="transactional")
async def look() -> str:
    """Look at the board."""
    board = board_after(await played())
    return f"{board}\n{state_of(board)}"


@midturn.tool(effect="transactional")
async def move(move: str) -> str:
    """Make a move, such as e2e4."""
    moves = await played()
    board = board_after(moves)
    try:
        board.push_uci(move)
    except ValueError:
        return f"{move} is not legal: {state_of(board)}"
    await midturn.transaction().execute("INSERT INTO moves VALUES (?, ?)", (len(moves) + 1, move))
    return f"moved {move}" + (f", and {state_of(board)}" if board.is_game_over() else "")


# 3. The players. A script stands for the models; put your own there.


def scripted(side: str) -> ScriptedModel:
    def play(messages: Sequence[LLMMessage]) -> str | ToolCall:
        last = text_of(messages[-1])
        if last.startswith("moved"):
            return f"{side} {last}."
        if "to move" not in last:
            return ToolCall("look")
        if f"{side} to move" not in last:
            return f"{side} waits."
        number, legal = int(last.partition("move ")[2].partition(",")[0]), last.rpartition(": ")[2].split()
        planned = SCRIPT[number - 1] if number <= len(SCRIPT) else ""
        return ToolCall("move", {"move": planned if planned in legal else legal[-1]})

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
                    if isinstance(item, TextMessage) and item.source in SIDES.values() and not midturn.replayed(item):
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
