"""The private names of AutoGen under which agents, teams and their parts have how they were configured.

They are only read, and only where an object has them. ``tests/autogen/test_private.py`` fails, naming it, when one is
gone, as for :mod:`midturn.autogen.private`.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogen_agentchat.base import AndTerminationCondition, OrTerminationCondition
from autogen_agentchat.conditions import (
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
)

if TYPE_CHECKING:
    from autogen_agentchat.base import TerminationCondition
    from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, MessageFactory
    from autogen_core.tools import BaseTool, StaticWorkbench

SYSTEM_MESSAGES = "_system_messages"
INSTRUCTION = "_instruction"
INSTRUCTIONS = "_instructions"
RESPONSE_PROMPT = "_response_prompt"
SELECTOR_PROMPT = "_selector_prompt"
FINAL_ANSWER_PROMPT = "_final_answer_prompt"

MODEL_CLIENT = "_model_client"
CREATE_ARGS = "_create_args"
RAW_CONFIG = "_raw_config"
SERVICE_CLIENT = "_client"
SERVICE_MODEL = "_model"
DEPLOYMENT = "_deployment_name"

WORKBENCH = "_workbench"
TOOLS = "_tools"
ORIGINAL_TOOLS = "_original_tools"
API_TOOLS = "_api_tools"
HANDOFFS = "_handoffs"
OUTPUT_TYPE = "_output_content_type"
MEMORY = "_memory"

CODE_EXECUTOR = "_code_executor"
FILTER = "_filter"

GRAPH = "_graph"
TERMINATION = "_termination_condition"
CONDITIONS = "_conditions"

OWN_PROMPT = "system_message"
"""What users call it in agents of their own, as AutoGen calls the argument."""

PROMPTS = (SYSTEM_MESSAGES, OWN_PROMPT, INSTRUCTION, INSTRUCTIONS, RESPONSE_PROMPT)
TEAM_PROMPTS = (SELECTOR_PROMPT, FINAL_ANSWER_PROMPT)

CONTEXT_SIZES = ("_buffer_size", "_head_size", "_tail_size", "_token_limit")

AGENT_SETTINGS = {
    "AssistantAgent": (
        "_model_client_stream",
        "_reflect_on_tool_use",
        "_max_tool_iterations",
        "_tool_call_summary_format",
        "_tool_call_summary_formatter",
        "_output_content_type_format",
    ),
    "CodeExecutorAgent": (
        "_approval_func",
        "_max_retries_on_error",
        "_model_client_stream",
        "_sources",
        "_supported_languages",
    ),
    "UserProxyAgent": ("input_func",),
    "OpenAIAgent": ("_temperature", "_max_output_tokens", "_json_mode", "_store", "_truncation"),
    "OpenAIAssistantAgent": ("_temperature", "_top_p"),
}
"""What else decides how agents work, by the classes that have it; a subclass of a user's own has it too."""

TEAM_SETTINGS = {
    "BaseGroupChat": ("_max_turns", "_emit_team_events"),
    "SelectorGroupChat": (
        "_max_selector_attempts",
        "_allow_repeated_speaker",
        "_selector_func",
        "_candidate_func",
        "_model_client_streaming",
    ),
    "MagenticOneGroupChat": ("_max_stalls",),
}
"""The same for teams."""

CONDITION_LIMITS: dict[type[TerminationCondition], tuple[str, ...]] = {
    AndTerminationCondition: (),
    ExternalTermination: (),
    FunctionCallTermination: ("_function_name",),
    FunctionalTermination: ("_func",),
    HandoffTermination: ("_target",),
    MaxMessageTermination: ("_max_messages", "_include_agent_event"),
    OrTerminationCondition: (),
    SourceMatchTermination: ("_sources",),
    StopMessageTermination: (),
    TextMentionTermination: ("_termination_text", "_sources"),
    TextMessageTermination: ("_source",),
    TimeoutTermination: ("_timeout_seconds",),
    TokenUsageTermination: ("_max_total_token", "_max_prompt_token", "_max_completion_token"),
}
"""When each termination condition stops a team: what does not change while the team runs."""


def message_classes(factory: MessageFactory) -> dict[str, type[BaseAgentEvent | BaseChatMessage]]:
    """The message types that are known, by their names."""
    return dict(factory._message_types)


def tools_of(workbench: StaticWorkbench) -> list[BaseTool[Any, Any]]:
    """The tools of a workbench whose tools never change, as they are without its overrides."""
    return list(workbench._tools)
