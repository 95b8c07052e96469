"""A function that fails, errors with secrets in their texts, and sessions that nobody runs without redaction."""

import gc
import logging
import traceback

import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from desks import HIDDEN, Failing, Talker, blueprint, build, card, proxy_team, redact, team
from stored_text import everything

import midturn
from midturn.testing import ToolCall


def failing(kind):
    """Return a function that fails for texts of one kind, with an error that has the text."""

    def function(text, where):
        if where.kind == kind:
            raise ValueError(f"cannot read {text}")
        return redact(text, where)

    return function


def shown(error):
    """Return all that an error and the errors in its chain show, and what is in their frames."""
    found, left, known = [], [error], []
    while left:
        each = left.pop()
        if each is None or any(each is other for other in known):
            continue
        known.append(each)
        found += [str(each), repr(each), *map(str, getattr(each, "__notes__", ())), repr(vars(each))]
        found += traceback.format_exception(each)
        left += [each.__cause__, each.__context__]
    return "\n".join(found)


async def test_a_task_that_cannot_be_redacted_is_not_accepted(store):
    case = store.session("case", blueprint(function=failing("task")))
    with pytest.raises(midturn.RedactionFailed) as raised:
        await case.run(f"My order with {card(0)}")
    assert "ValueError (test_failing.py, line" in str(raised.value)
    assert card(0)[:4] not in shown(raised.value)
    with pytest.raises(midturn.NotFound):
        await store.info("case")


@pytest.mark.parametrize("kind", ["model", "tool"])
@pytest.mark.parametrize("factory", [build, team])
async def test_an_answer_that_cannot_be_redacted_fails_the_turn_and_is_not_stored(store, kind, factory):
    case = store.session("case", blueprint(factory, failing(kind), effects={"look": "read"}))
    with pytest.raises(midturn.RedactionFailed) as raised:
        await case.run(f"My order with {card(0)}")
    assert card(0)[:4] not in shown(raised.value)
    assert card(0)[:4] not in await everything(store, "case")
    assert (await store.info("case")).status == "failed"
    result = await store.session("case", blueprint(factory, effects={"look": "read"})).resume()
    assert f"It was paid with {HIDDEN}." in str(result.messages)


async def test_words_of_an_agent_that_cannot_be_redacted_fail_the_turn_and_are_not_stored(store):
    case = store.session("case", blueprint(Talker, failing("agent")))
    with pytest.raises(midturn.RedactionFailed) as raised:
        await case.run("hello")
    assert card(0)[:4] not in shown(raised.value) + await everything(store, "case")
    assert (await store.session("case", blueprint(Talker)).resume()).messages[-1].content.startswith("My own [card]")


async def test_an_unsafe_call_whose_result_cannot_be_redacted_is_in_doubt(store):
    case = store.session("case", blueprint(function=failing("tool")))
    with pytest.raises(midturn.RedactionFailed):
        await case.run(f"My order with {card(0)}")
    assert (await store.session("case", blueprint()).resume()).waiting.kind == "doubt"


@pytest.mark.parametrize("returned", [None, 7, b"text", ["text"]])
async def test_a_function_that_returns_no_text_fails_the_turn(store, returned):
    with pytest.raises(midturn.RedactionFailed, match=f"returned a {type(returned).__name__}, not a text"):
        await store.session("case", blueprint(function=lambda text, where: returned)).run("hello")


async def test_an_answer_that_cannot_be_redacted_is_not_recorded_and_the_turn_still_waits(store):
    case = store.session("case", blueprint(proxy_team))
    await case.run("hello")
    with pytest.raises(midturn.RedactionFailed):
        await store.session("case", blueprint(proxy_team, failing("human"))).answer(f"It is {card(1)}")
    assert (await store.info("case")).status == "waiting"
    assert card(0)[:4] not in await everything(store, "case")


async def test_only_the_class_of_an_error_is_stored_if_its_text_cannot_be_redacted(store):
    case = store.session("case", blueprint(Failing, failing("error")))
    with pytest.raises(midturn.TurnFailed) as raised:
        await case.run("hello")
    assert "LookupError: its text could not be redacted" in str(raised.value)
    assert card(0)[:4] not in shown(raised.value) + await everything(store, "case")


def test_redact_must_be_a_function():
    with pytest.raises(midturn.InvalidArgument, match="redact: must be a function, not a str"):
        blueprint(function="[card]")


async def raising(order: str) -> str:
    """Look an order up."""
    raise ValueError(f"no {card(14)}")


def raising_model():
    async def reply(messages):
        try:
            int(f"inner {card(14)}")
        except ValueError as error:
            raise ConnectionError(f"no answer to {card(15)}") from error

    return build(reply, [])


def raising_team():
    return RoundRobinGroupChat([Failing()], termination_condition=MaxMessageTermination(3))


@pytest.mark.parametrize(
    "factory", [Failing, raising_model, raising_team, lambda: RoundRobinGroupChat([raising_model()])]
)
@pytest.mark.parametrize("durability", ["call", "turn"])
async def test_an_error_is_stored_raised_and_logged_without_its_secrets(store, factory, durability, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    case = store.session("case", blueprint(factory, effects={}), durability=durability)
    with pytest.raises(midturn.TurnFailed) as raised:
        await case.run("hello")
    gc.collect()
    assert HIDDEN in str(raised.value)
    assert HIDDEN in (await case.turn(1)).error
    logged = caplog.text + "".join(capfd.readouterr())
    assert card(0)[:4] not in shown(raised.value) + await everything(store, "case") + logged


async def test_an_error_without_secrets_stays_as_it_is(store):
    class Odd(Talker):
        async def on_messages(self, messages, cancellation_token):
            raise LookupError("nothing to redact")

    with pytest.raises(midturn.TurnFailed) as raised:
        await store.session("case", blueprint(Odd)).run("hello")
    assert isinstance(raised.value.__cause__, LookupError)
    assert raised.value.__cause__.__traceback__ is not None


async def test_the_error_of_a_tool_is_redacted_before_the_model_gets_it(store):
    script = {"My order": ToolCall("raising", {"order": "A1"}), "": "Done."}
    case = store.session("case", blueprint(lambda: build(script, [raising]), effects={"raising": "read"}))
    result = await case.run("My order")
    assert f"no {HIDDEN}" in str(result.messages)
    assert card(0)[:4] not in await everything(store, "case")


async def test_a_transaction_whose_result_cannot_be_redacted_is_rolled_back(tmp_path):
    async def book(order: str) -> str:
        transaction = midturn.transaction()
        await transaction.execute("CREATE TABLE IF NOT EXISTS booked (number TEXT)")
        await transaction.execute("INSERT INTO booked VALUES ('A1')")
        return f"booked {card(1)}"

    script = {"My order": ToolCall("book", {"order": "A1"}), "": "Done."}
    options = {"effects": {"book": "transactional"}}
    async with midturn.open(f"sqlite:///{tmp_path}/store.db") as store:
        case = store.session("case", blueprint(lambda: build(script, [book]), failing("tool"), **options))
        with pytest.raises(midturn.RedactionFailed):
            await case.run("My order")
        result = await store.session("case", blueprint(lambda: build(script, [book]), **options)).resume()
        assert f"booked {HIDDEN}" in str(result.messages)
        assert card(0)[:4] not in await everything(store, "case")


async def test_a_session_that_is_redacted_is_not_run_without_the_function(store):
    await store.session("case", blueprint()).run("hello")
    with pytest.raises(midturn.InvalidArgument, match="redact: is missing"):
        await store.session("case", blueprint(function=None)).run(f"hello {card(0)}")
    assert card(0) not in await everything(store, "case")
    await store.session("case", blueprint(function=lambda text, where: text)).run(f"the way out {card(0)}")
    assert card(0) in await everything(store, "case")


async def test_words_of_people_need_the_function_and_decisions_do_not(store):
    script = {"My order": ToolCall("look", {"order": "A1"}), "": "Done."}
    desk = blueprint(lambda: build(script), effects={"look": midturn.tool(approval=True)})
    await store.session("case", desk).run("My order")
    nobody = store.session("case")
    for answer, arguments in ((f"deny: {card(1)}", None), ("approve", {"order": card(1)})):
        with pytest.raises(midturn.InvalidArgument, match="redact: is missing"):
            await nobody.answer(answer, arguments=arguments)
    assert await nobody.answer("approve") is None
    assert (await store.session("case", desk).resume()).messages[-1].content == "Done."


async def test_an_answer_is_redacted_also_if_another_blueprint_began_the_turn(store):
    await store.session("case", blueprint(proxy_team, None)).run("hello")
    await store.session("case", blueprint(proxy_team)).answer(f"It is {card(1)}")
    assert card(1) not in await everything(store, "case")


async def test_a_fork_of_a_redacted_session_is_redacted(store):
    await store.session("case", blueprint()).run("hello")
    await store.session("case").fork("other")
    with pytest.raises(midturn.InvalidArgument, match="redact: is missing"):
        await store.session("other", blueprint(function=None)).run("hello")
