"""F18: values that no record can carry. The same typed refusal on every store, with the path, and nothing changed."""

import pytest
from autogen_agentchat.messages import TextMessage
from autogen_core.models import RequestUsage

import midturn
from midturn.record.codec import decode_foreign


def deep(levels, wrap):
    value = 1
    for _ in range(levels):
        value = wrap(value)
    return value


def cyclic():
    value = {}
    value["self"] = value
    return value


POISON = {
    "deep objects": (lambda: deep(10**5, lambda value: {"d": value}), "nested deeper"),
    "deep arrays": (lambda: deep(10**5, lambda value: [value]), "nested deeper"),
    "cycle": (cyclic, "nested deeper"),
    "object": (object, "object is not JSON"),
    "object in a set": (lambda: {1, object()}, "object is not JSON"),
    "object as a key": (lambda: {object(): 1}, "cannot be the key"),
    "deep tuples": (lambda: deep(10**5, lambda value: (value,)), "nested deeper"),
    "70 MB of text": (lambda: "x" * 70_000_000, "the limit for one value"),
}


@pytest.fixture(params=POISON)
def poison(request):
    make, why = POISON[request.param]
    return make(), why


async def on_each(urls, attempt, kind=midturn.StateInvalid):
    """The error that the attempt ends with, which is the same on every store."""
    errors = []
    for url in urls.values():
        async with midturn.open(url) as store:
            with pytest.raises(kind) as caught:
                await attempt(store)
            errors.append((str(caught.value), caught.value.path))
    assert len(set(errors)) == 1, "the stores differ"
    return caught.value


@pytest.mark.parametrize("where", ["a", "a.b[1]"])
async def test_a_state_saved_by_hand(urls, poison, where, keeper):
    value, why = poison
    bad = {"good": 2, "a": value if where == "a" else {"b": [0, value]}}

    async def save(store):
        await store.save("case", keeper({"good": 1}))
        try:
            await store.save("case", keeper(bad))
        finally:
            found = keeper()
            assert await store.load("case", found) == 1
            assert found.state == {"good": 1}
            assert [turn.number async for turn in store.session("case").history()] == [1]
            assert await store.save("case", keeper({"good": 3})) == 2

    error = await on_each(urls, save)
    assert why in str(error)
    assert error.path.startswith(f"$.state.{where}")


async def test_a_state_after_a_turn(urls, poison, keeper):
    value, why = poison

    async def run(store):
        await store.session("case", lambda: keeper({"good": 1})).run(task="first")
        bad = store.session("case", lambda: Growing(keeper({}), value))
        try:
            await bad.run(task="second")
        finally:
            found = keeper()
            assert await store.load("case", found) == 1
            assert found.state == {"good": 1}
            good = store.session("case", lambda: keeper({}))
            assert (await good.run(task="third")).turn == 3, "the session cannot be used any more"
            statuses = [turn.status async for turn in good.history()]
            assert statuses == ["done", "failed", "done"]

    error = await on_each(urls, run)
    assert why in str(error)
    assert error.path.startswith("$.state.a")


def Growing(keeper, value):  # noqa: N802 - it stands for a class
    """A keeper that loads what it is given and then wants to keep more than that."""
    answer = keeper.on_messages

    async def on_messages(messages, cancellation_token):
        keeper.state = {**keeper.state, "a": value}
        return await answer(messages, cancellation_token)

    keeper.on_messages = on_messages
    return keeper


async def test_an_imported_state(urls, poison):
    value, why = poison

    async def import_(store):
        try:
            await store.session("case").save({"state": {"a": {"b": [0, value]}}}, origin="import")
        finally:
            assert [info.id async for info in store.sessions()] == []

    error = await on_each(urls, import_)
    assert why in str(error)
    assert error.path.startswith("$.state.a.b[1]")


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 2}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b'{"a": ' + b"9" * 4301 + b"}",
        b'{"a": ' + b"9" * 20 + b"}",
        b"[" * 10**5 + b"]" * 10**5,
        b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
        b'{"a": 1',
        b"",
        b"\x80\x04\x95.",
    ],
    ids=lambda data: f"{data[:16]!r}",
)
def test_json_from_outside(data):
    with pytest.raises(midturn.StateInvalid, match=r"state\.json") as caught:
        decode_foreign(data, "state.json")
    assert caught.value.path.startswith("state.json")
    assert len(str(caught.value)) < 500


MESSAGES = {
    "surrogate": (lambda: "hi \ud800", ".content"),
    "surrogate in the metadata": (
        lambda: TextMessage(content="hi", source="u", metadata={"k": "\udc00"}),
        ".metadata.k",
    ),
    "surrogate in the source": (lambda: TextMessage(content="hi", source="\udc00"), ".source"),
    "too large a number": (
        lambda: TextMessage(content="hi", source="u", models_usage=RequestUsage(2**70, 1)),
        ".models_usage.prompt_tokens",
    ),
    "70 MB": (lambda: "x" * 70_000_000, ".content"),
}


@pytest.mark.parametrize("name", MESSAGES)
async def test_a_task(urls, name, keeper):
    make, part = MESSAGES[name]

    async def run(store):
        try:
            await store.session("case", lambda: keeper({"good": 1})).run(task=make(), key="k")
        finally:
            assert [info.id async for info in store.sessions()] == []
            assert (await store.session("case", keeper).run(task="good", key="k")).turn == 1

    assert (await on_each(urls, run, midturn.InvalidArgument)).path == f"task[0]{part}"


@pytest.mark.parametrize("bad", [42, b"hi", [], [1], {"content": "hi"}, object], ids=repr)
async def test_what_is_no_task(urls, bad, keeper):
    async def run(store):
        try:
            await store.session("case", keeper).run(task=bad)
        finally:
            assert [info.id async for info in store.sessions()] == []

    assert (await on_each(urls, run, midturn.InvalidArgument)).path.startswith("task")


@pytest.mark.parametrize("key", ["", "x" * 501, "\ud800", 42, b"k"], ids=lambda key: f"{key!a}"[:20])
async def test_a_key(urls, key, keeper):
    async def run(store):
        try:
            await store.session("case", keeper).run(task="hi", key=key)
        finally:
            assert [info.id async for info in store.sessions()] == []

    assert (await on_each(urls, run, midturn.InvalidArgument)).path == "key"


@pytest.mark.parametrize(
    "labels", [{"a": "\ud800"}, {"\ud800": "a"}, {"a": 1}, {1: "a"}, {"a": None}], ids=lambda x: f"{x!a}"
)
async def test_labels(urls, labels, keeper):
    async def run(store):
        try:
            await store.session("case", keeper, labels=labels).run(task="hi")
        finally:
            assert [info.id async for info in store.sessions()] == []

    assert (await on_each(urls, run, midturn.InvalidArgument)).path.startswith("label")


async def test_an_answer_of_the_agent(urls, keeper):
    reply = "x" * 70_000_000

    async def run(store):
        case = store.session("case", lambda: keeper({"good": 1}))
        await case.run(task="first")
        try:
            await store.session("case", lambda: keeper({"good": 1}, reply)).run(task="second")
        finally:
            assert (await store.session("case", keeper).run(task="third")).turn == 3
            assert [turn.status async for turn in case.history()] == ["done", "failed", "done"]

    assert (await on_each(urls, run)).path.endswith("content")


@pytest.mark.parametrize(
    "text", ["plain", "half \ud800", "x" * 10**6, "\0", "\x1b[31m"], ids=lambda text: f"{text!a}"[:20]
)
async def test_an_error_of_the_agent_never_blocks_its_session(url, text, keeper):
    async with midturn.open(url) as store:
        bad = store.session("case", lambda: keeper(reply=RuntimeError(text)))
        with pytest.raises(midturn.TurnFailed):
            await bad.run(task="first")
        good = store.session("case", keeper)
        assert (await good.run(task="second")).turn == 2
        first, second = [turn async for turn in good.history()]
        assert (first.status, second.status) == ("failed", "done")
        assert first.error.startswith("RuntimeError")


async def test_what_json_can_carry_comes_back_exactly(urls, keeper):
    state = {
        "nul": "a\0b",
        "\0": ["\0"],
        "": {},
        "$": {"$": 7, "$log": 0, "$$": "$"},
        "$log": [{"$": 1}, {"$log": 2}],
        "text": '\u2028\ufeff\uffff\U0010ffff e\u0301 \u00e9 \x7f\x1b \\ " \r\n',
        "numbers": [2**63 - 1, -(2**63), 0, 1.5, 1e308, 5e-324, 0.1],
        "deep": deep(90, lambda value: [value]),
        "long": "ab\0" * 100_000,
        "messages": [{"n": n, "text": "same " * 20} for n in range(30)],
        "rest": [None, True, False, [], {}, [[]], [{}]],
    }
    for url in urls.values():
        async with midturn.open(url) as store:
            await store.session("case", lambda: keeper(state)).run(task="a\0b", key="k\0")
            assert (await store.session("case", keeper).run(task="a\0b", key="k\0")).turn == 1
            found = keeper()
            await store.load("case", found)
            assert found.state == state
            assert [type(item) for item in found.state["numbers"]] == [type(item) for item in state["numbers"]]
            (turn,) = [turn async for turn in store.session("case").history()]
            assert (turn.task[0].content, turn.key) == ("a\0b", "k\0")
