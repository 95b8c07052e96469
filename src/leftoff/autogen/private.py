"""Every private name of AutoGen that leftoff uses, and nothing else that does.

AutoGen has no public way to reach them. ``tests/autogen/test_private.py`` fails, naming it, when one is gone.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from autogen_agentchat.messages import StructuredMessage
from autogen_agentchat.teams import SelectorGroupChat
from autogen_core import AgentId, SingleThreadedAgentRuntime

if TYPE_CHECKING:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.base import ChatAgent, Team
    from autogen_agentchat.messages import MessageFactory
    from autogen_agentchat.teams import BaseGroupChat
    from autogen_core.model_context import ChatCompletionContext

AGENT_CONTEXT = "_model_context"
CONTEXT_MESSAGES = "_messages"
CONTAINER_BUFFER = "_message_buffer"
MANAGER_THREAD = "_message_thread"


def participants(team: BaseGroupChat) -> list[ChatAgent | Team]:
    """The members of a team, in order."""
    return list(team._participants)


def model_context(agent: AssistantAgent) -> ChatCompletionContext:
    """Where an agent keeps its conversation with the model."""
    context: ChatCompletionContext = getattr(agent, AGENT_CONTEXT)
    return context


def structured_type(agent: AssistantAgent) -> type[StructuredMessage[Any]] | None:
    """The type of an agent's structured answers, if it gives any."""
    content, generic = agent._output_content_type, cast("Any", StructuredMessage)
    return None if content is None else generic[content]


def message_factory(team: BaseGroupChat) -> MessageFactory:
    """What turns JSON into the message types that a team knows."""
    return team._message_factory


def manager_name(team: BaseGroupChat) -> str:
    """Under which name the team's manager stands in the team's state."""
    return team._group_chat_manager_name


async def containers(team: BaseGroupChat) -> dict[str, Any]:
    """The objects around each participant, and the manager, by their names in the team's state; none before a run."""
    if not team._initialized or not isinstance(team._runtime, SingleThreadedAgentRuntime):
        return {}
    types = dict(zip(team._participant_names, team._participant_topic_types, strict=True))
    types[team._group_chat_manager_name] = team._group_chat_manager_topic_type
    return {
        name: await team._runtime.try_get_underlying_agent_instance(AgentId(type=kind, key=team._team_id))
        for name, kind in types.items()
    }


async def renew(team: BaseGroupChat) -> None:
    """Make a team build its manager and containers anew when it is next used, as after its construction."""
    if team._termination_condition is not None:
        await team._termination_condition.reset()
    if isinstance(team, SelectorGroupChat) and team._model_context is not None:
        await team._model_context.clear()  # load_state() adds to what is there
    if team._embedded_runtime:
        team._runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
        team._initialized = False
    team._is_running = False
    team._output_message_queue = asyncio.Queue()


def tasks(team: BaseGroupChat) -> set[asyncio.Task[Any]]:
    """What still runs in the team's own runtime."""
    runtime = team._runtime
    if not team._embedded_runtime or not isinstance(runtime, SingleThreadedAgentRuntime):
        return set()
    running = set(runtime._background_tasks)
    if runtime._run_context is not None:
        running.add(runtime._run_context._run_task)
    return running
