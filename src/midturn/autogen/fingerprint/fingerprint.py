"""Describe the configuration of agents and teams, as JSON that people can read and that is the same in every process.

A fingerprint contains no conversation and no secrets. Of a model's client it contains only the class and the model's
name. Users' own classes are described like AutoGen's. An attribute that raises is omitted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, cast

import autogen_agentchat
from autogen_agentchat.base import AndTerminationCondition, ChatAgent, OrTerminationCondition, Team
from autogen_agentchat.messages import BaseChatMessage, MessageFactory, StructuredMessage
from autogen_agentchat.teams import BaseGroupChat
from autogen_core.code_executor import CodeExecutor
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, StaticWorkbench, Workbench
from pydantic import BaseModel

from midturn.autogen import private
from midturn.autogen.fingerprint.plain_json import DEPTH, Prose, Schema, Shown, function_name, plain
from midturn.autogen.fingerprint.secrets import hiding
from midturn.autogen.parts.kinds import is_autogens, is_mapping, traits_of
from midturn.record.codec import class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from midturn.autogen.fingerprint.secrets import Hiding
    from midturn.autogen.parts.walk import Part

TEXTS = {"tool_call_summary_format", "output_content_type_format", "termination_text"}
"""Settings that are prose, not names."""


async def fingerprint(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the configuration of the agents and teams among these parts, by their paths."""
    agents: dict[str, Any] = {}
    teams: dict[str, Any] = {}
    hide = hiding()
    if parts and not traits_of(parts[0].live).is_runtime:
        answers = {name for part in parts if (name := _answer_name(part.live)) is not None}
        for part in parts:
            if isinstance(part.live, Team):
                teams[part.path] = _filled(_team(part.live, answers, hide))
            elif isinstance(part.live, ChatAgent):
                agents[part.path] = _filled(_agent(part.live))
                agents[part.path] |= _filled({"tools": await _tools(part.live)})
    versions = {"autogen": autogen_agentchat.__version__, "midturn": _version()}
    found: Any = plain({"agents": agents, "teams": teams, "versions": versions}, hide)
    return cast("dict[str, Any]", found)


@lru_cache(maxsize=1)
def _version() -> str | None:
    try:
        return version("midturn")
    except PackageNotFoundError:  # its files are used without being installed
        return None


def _agent(agent: ChatAgent) -> dict[str, Any]:
    return {
        "name": _tried(lambda: agent.name),
        "class": class_of(agent).__name__,
        "description": _tried(lambda: _prose(agent.description)),
        "model": _model(agent),
        "prompt": _tried(lambda: list(_prompts(agent, private.PROMPTS))),
        "handoffs": _tried(lambda: _handoffs(agent)),
        "output": _output(agent),
        "context": _context(agent),
        "memory": [class_of(memory).__name__ for memory in _listed(agent, private.MEMORY, Memory)],
        "workbenches": [
            class_of(bench).__name__ for bench in _listed(agent, private.WORKBENCH, Workbench) if not _has_fixed(bench)
        ],
        "settings": _settings(agent, private.AGENT_SETTINGS)
        | _filled(
            {
                "code_executor": [
                    class_of(executor).__name__ for executor in _listed(agent, private.CODE_EXECUTOR, CodeExecutor)
                ],
                "filter": _tried(lambda: _filter(agent)),
            }
        ),
    }


def _team(team: Team, answers: AbstractSet[str], hide: Hiding) -> dict[str, Any]:
    members = private.participants(team) if isinstance(team, BaseGroupChat) else []
    context = _context(team)
    return {
        "name": _tried(lambda: team.name),
        "class": class_of(team).__name__,
        "description": _tried(lambda: _prose(team.description)),
        "participants": [_tried(partial(_name, member)) or class_of(member).__name__ for member in members],
        "prompt": _tried(lambda: list(_prompts(team, private.TEAM_PROMPTS))),
        "model": _model(team),
        "graph": _tried(lambda: _graph(team)),
        "termination": _tried(lambda: Shown(_condition(_read(team, private.TERMINATION), hide))),
        "settings": _settings(team, private.TEAM_SETTINGS)
        | _filled({"context": context, "message_types": _tried(lambda: _message_types(team, answers))}),
    }


def _name(member: ChatAgent | Team) -> str:
    return member.name


def _settings(live: Any, tables: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the settings of AutoGen's own classes in an agent or a team."""
    mine = [name for cls in class_of(live).__mro__ if is_autogens(cls) for name in tables.get(cls.__name__, ())]
    return _given(live, mine)


def _given(thing: Any, attributes: Sequence[str]) -> dict[str, Any]:
    given = _filled({name.lstrip("_"): _read(thing, name) for name in attributes})
    return {name: _prose(value) if name in TEXTS else value for name, value in given.items()}


def _prose(value: Any) -> Any:
    return Prose(value) if isinstance(value, str) else value


def _model(live: Any) -> dict[str, Any]:
    """Return the class of a model's client and the name of the model, and nothing else of the client."""
    client = _read(live, private.MODEL_CLIENT)
    for _ in range(3):
        inner = _read(client, "client")  # the client inside a cache
        client = inner if isinstance(inner, ChatCompletionClient) else client
    if isinstance(client, ChatCompletionClient):
        known = client
        given = (
            _tried(partial(_item, _read(known, where), "model")) for where in (private.CREATE_ARGS, private.RAW_CONFIG)
        )
        name = next((name for name in given if isinstance(name, str)), None)
        family = None if name else _tried(lambda: known.model_info["family"])
        return _filled({"class": class_of(client).__name__, "name": name, "family": family})
    named = _read(live, private.SERVICE_MODEL) or _read(live, private.DEPLOYMENT)
    if not isinstance(named, str):
        return {}
    service = _read(live, private.SERVICE_CLIENT)
    return _filled({"class": None if service is None else class_of(service).__name__, "name": named})


def _item(mapping: Any, key: str) -> Any:
    return mapping[key]


def _prompts(live: Any, attributes: Sequence[str]) -> Iterator[Prose]:
    for attribute in attributes:
        value = _read(live, attribute)
        for item in cast("list[Any]", value) if isinstance(value, list | tuple) else [value]:
            text = item if isinstance(item, str) else _read(item, "content")
            if isinstance(text, str) and text:
                yield Prose(text)


async def _tools(agent: ChatAgent) -> dict[str, Any]:
    """Return the tools of an agent as its model sees them. Skip a workbench that would have to be started."""
    found: dict[str, Any] = {}
    benches = [bench for bench in _listed(agent, private.WORKBENCH, Workbench) if isinstance(bench, StaticWorkbench)]
    for bench in benches:
        if not _has_fixed(bench):
            continue
        try:
            found |= {schema["name"]: _without_name(schema) for schema in await bench.list_tools()}
        except Exception:  # noqa: BLE001 - the schema of one tool may raise, and the others are still wanted
            found |= _schemas(private.tools_of(bench))
    if not benches:
        found |= _schemas(_listed(agent, private.ORIGINAL_TOOLS, BaseTool) or _listed(agent, private.TOOLS, BaseTool))
        hosted = [*_listed(agent, private.API_TOOLS, dict), *_listed(agent, private.TOOLS, dict)]
        # Their other fields may contain the key of a service.
        found |= {kind: {} for tool in hosted if isinstance(kind := tool.get("type"), str) and kind != "function"}
    return found


def _schemas(tools: Sequence[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tool in tools:
        if isinstance(name := _tried(partial(getattr, tool, "name")), str):
            found[name] = _without_name(_tried(partial(getattr, tool, "schema")) or {})
    return found


def _without_name(schema: Mapping[str, Any]) -> Schema:
    return Schema({key: value for key, value in schema.items() if key != "name"})


def _has_fixed(workbench: Workbench) -> bool:
    """Return whether the tools of a workbench are fixed when it is built."""
    return isinstance(workbench, StaticWorkbench) and is_autogens(class_of(workbench).list_tools)


def _handoffs(agent: ChatAgent) -> dict[str, Any]:
    handoffs = _read(agent, private.HANDOFFS)
    return {
        str(name): _filled({"target": _read(handoff, "target")})
        | _filled({key: _prose(_read(handoff, key)) for key in ("description", "message")})
        for name, handoff in (handoffs.items() if is_mapping(handoffs) else ())
    }


def _answer(live: Any) -> type[BaseChatMessage] | None:
    """Return the type of an agent's structured answers, if it has one."""
    content, generic = _read(live, private.OUTPUT_TYPE), cast("Any", StructuredMessage)
    return generic[content] if isinstance(content, type) and issubclass(content, BaseModel) else None


def _answer_name(live: Any) -> str | None:
    answer = _tried(lambda: _answer(live)) if isinstance(live, ChatAgent) else None
    return None if answer is None else answer.__name__


def _output(agent: ChatAgent) -> dict[str, Any]:
    answer = _tried(lambda: _answer(agent))
    return {} if answer is None else {"name": answer.__name__, "schema": _tried(lambda: _schema(answer)) or {}}


def _schema(message: type[BaseModel]) -> Schema:
    """Return the JSON schema of a message type, or of the content of a structured message."""
    generic: Any = StructuredMessage
    content: Any = message.model_fields["content"].annotation if issubclass(message, generic) else None
    is_model = isinstance(content, type) and issubclass(content, BaseModel)
    described = cast("type[BaseModel]", content if is_model else message)
    return Schema(described.model_json_schema())


def _message_types(team: Team, answers: AbstractSet[str]) -> dict[str, Any]:
    """Return the message types that a team was given. The types of answers are described with their agents."""
    if not isinstance(team, BaseGroupChat):
        return {}
    always = {*private.message_classes(MessageFactory()), StructuredMessage.__name__}
    return {
        name: _tried(partial(_schema, cls)) or {}
        for name, cls in sorted(private.message_classes(private.message_factory(team)).items())
        if name not in always and name not in answers
    }


def _context(live: Any) -> dict[str, Any]:
    context = _read(live, private.AGENT_CONTEXT)
    if not isinstance(context, ChatCompletionContext):
        return {}
    sizes = {name.lstrip("_"): _read(context, name) for name in private.CONTEXT_SIZES}
    return _filled({"class": class_of(context).__name__, **sizes})


def _filter(agent: ChatAgent) -> Any:
    kept = _read(agent, private.FILTER)
    return kept.model_dump(mode="json", exclude_none=True) if isinstance(kept, BaseModel) else None


def _graph(team: Team) -> dict[str, Any]:
    graph = _read(team, private.GRAPH)
    if graph is None:
        return {}
    nodes = {
        name: {"activation": node.activation, "edges": list(map(_edge, node.edges))}
        for name, node in graph.nodes.items()
    }
    return _filled({"start": graph.default_start_node, "nodes": nodes})


def _edge(edge: Any) -> dict[str, Any]:
    return _filled(
        {
            "to": edge.target,
            "if": _prose(edge.condition) if edge.condition_function is None else None,
            "if_function": edge.condition_function,
            "group": edge.activation_group if edge.activation_group != edge.target else None,
            "activation": edge.activation_condition,
        }
    )


def _condition(condition: Any, hide: Hiding, depth: int = DEPTH) -> str:
    """Return when a team stops, as text: ``MaxMessageTermination(max_messages=4) | (a & b)``."""
    if condition is None or not depth:
        return ""
    if isinstance(condition, AndTerminationCondition | OrTerminationCondition):
        inner = [_condition(one, hide, depth - 1) for one in _read(condition, private.CONDITIONS) or ()]
        sign = " & " if isinstance(condition, AndTerminationCondition) else " | "
        return sign.join(f"({text})" if " & " in text or " | " in text else text for text in inner)
    limits = [name for cls in class_of(condition).__mro__ for name in private.CONDITION_LIMITS.get(cls, ())]
    given = _given(condition, limits)
    shown = [
        f"{name}={function_name(value) if callable(value) else _text(value, hide)}" for name, value in given.items()
    ]
    return f"{class_of(condition).__name__}({', '.join(shown)})"


def _text(value: Any, hide: Hiding) -> str:
    return json.dumps(plain(value, hide), sort_keys=True, ensure_ascii=False)


def _read(thing: Any, attribute: str) -> Any:
    """Return an attribute, with or without the underscore. This runs no code of the object."""
    attributes: Any = getattr(thing, "__dict__", None)
    if not isinstance(attributes, dict):
        return None
    own = cast("dict[str, Any]", attributes)
    return next((own[name] for name in (attribute, attribute.lstrip("_"), f"_{attribute}") if name in own), None)


def _listed(live: Any, attribute: str, kind: type[Any]) -> list[Any]:
    """Return the values of one type in an attribute that has one value or several."""
    value = _read(live, attribute)
    several = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
    return [item for item in several if isinstance(item, kind)]


def _filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without those that are empty or off."""
    return {
        key: value
        for key, value in settings.items()
        if value is not None
        and value is not False
        and not (isinstance(value, str | list | tuple | Mapping | AbstractSet) and not value)
    }


def _tried(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # noqa: BLE001 - it may be a user's own class
        return None
