"""The OpenAPI document says what the API does, and the API does what the document says."""

import asyncio
import threading
from dataclasses import dataclass

import pytest
import schemathesis
from http_clients import BEARER, TOKEN, client_of, inner
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter

import midturn
from midturn.history import json_view

EXAMPLES = 8 if settings().max_examples < 1000 else 300
"""Number of generated requests for each operation."""


async def test_it_is_openapi_3_1_with_a_schema_and_an_error_for_each_operation(app):
    found = inner(app).openapi()
    assert found["openapi"].startswith("3.1")
    names = []
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            names.append(operation["operationId"])
            assert operation["description"], (method, path)
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            good = [answer for status, answer in operation["responses"].items() if status[0] == "2" and status != "204"]
            assert (method == "delete") or good
            for answer in good:
                for content in answer["content"].values():
                    assert content["schema"] != {} or operation["operationId"] == "export_session", (method, path)
    assert len(names) == len(set(names))


def examples(node, at="$"):
    """Every example with its schema, and where it stands."""
    if isinstance(node, dict):
        if "schema" in node and "example" in node:
            yield at, node["schema"], node["example"]
        for example in node.get("examples", ()) if "type" in node or "anyOf" in node else ():
            yield at, {key: value for key, value in node.items() if key != "examples"}, example
        for name, value in node.items():
            yield from examples(value, f"{at}.{name}")
    elif isinstance(node, list):
        for value in node:
            yield from examples(value, at)


async def test_its_examples_fit_its_schemas(app):
    found = inner(app).openapi()
    known = list(examples(found))
    assert len(known) > 30
    for at, schema, example in known:
        whole = {**schema, "components": found["components"]}
        assert [error.message for error in Draft202012Validator(whole).iter_errors(example)] == [], at


def check_keys(kind, value):
    """See that a value has exactly the keys of a type, all the way down, with values of their types."""
    Draft202012Validator(closed(TypeAdapter(kind).json_schema())).validate(value)


def closed(schema):
    """A schema whose objects have no other keys than those that it names."""
    if isinstance(schema, dict):
        extra = {"additionalProperties": False} if "properties" in schema else {}
        return {name: closed(value) for name, value in schema.items()} | extra
    return [closed(value) for value in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("SessionJson", "/sessions/case"),
        ("SessionJson", "/sessions/fork"),
        ("SessionJson", "/sessions/gone"),
        ("WholeTurnJson", "/sessions/case/turns/1"),
        ("WholeTurnJson", "/sessions/case/turns/2"),
        ("WholeTurnJson", "/sessions/case/turns/3"),
        ("LineageJson", "/sessions/case/lineage"),
        ("DiffJson", "/sessions/case/diff?before=1&after=2"),
    ],
)
async def test_the_json_has_exactly_the_keys_of_its_types(api, store, clerks, kind, path):
    case = store.session("case", clerks.support)
    await case.run("hello")
    await case.run("pay")
    await case.answer("approve", by="ann")
    await case.fork("fork")
    await case.run("pay")
    await store.session("gone", clerks.support).run("hello")
    await store.delete("gone", by="ann")
    check_keys(getattr(json_view, kind), (await api.get(path)).json())
    trail = (await api.get("/audit")).json()["acts"]
    for act in trail:
        check_keys(json_view.AuditJson, act)
    assert {act["what"] for act in trail} >= {"approval", "fork", "delete"}


@dataclass
class Threaded:
    """The app in an event loop of a thread, for requests that are made without one."""

    app: object
    loop: asyncio.AbstractEventLoop

    def request(self, method, url, **options):
        async def ask():
            async with client_of(self.app, {}) as client:
                return await client.request(method, url, **options)

        return asyncio.run_coroutine_threadsafe(ask(), self.loop).result(60)


@pytest.fixture
def threaded(clerks):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def wait(work):
        return asyncio.run_coroutine_threadsafe(work, loop).result(60)

    async def begin():
        store = await midturn.open("memory://", drain=0)
        case = store.session("case-42", clerks.support)
        await case.run("hello")
        await case.run("pay")
        return store

    store = wait(begin())
    clerks.GO.set()
    try:
        yield Threaded(midturn.asgi(store, [clerks.support], token=TOKEN), loop)
    finally:
        wait(store.aclose())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_generated_requests_get_what_the_document_says(threaded):
    document = threaded.request("GET", "/api/openapi.json", headers=BEARER).json()
    schema = schemathesis.openapi.from_dict(document)
    asked = 0

    def run(operation):
        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case):
            nonlocal asked
            asked += 1
            sent = case.as_transport_kwargs(base_url="http://localhost")
            del sent["cookies"]
            answer = threaded.request(**{**sent, "headers": {**dict(sent["headers"]), **BEARER}})
            assert answer.status_code != 500 or answer.json()["title"] == "TurnFailed", (sent, answer.text)
            check(document, operation, answer, sent)

        ask()

    for result in schema.get_all_operations():
        run(result.ok())
    assert asked >= 20 * EXAMPLES / 2


def check(document, operation, answer, sent):
    """See that the document has this status, this media type and this body."""
    responses = operation.definition.raw["responses"]
    described = responses.get(str(answer.status_code), responses["default"])
    if answer.status_code in (204, 304):
        assert answer.content == b""
        return
    kind = answer.headers["content-type"].partition(";")[0]
    assert kind in described["content"], (sent, answer.text)
    if kind != "text/event-stream":
        whole = {**described["content"][kind]["schema"], "components": document["components"]}
        assert [error.message for error in Draft202012Validator(whole).iter_errors(answer.json())] == [], sent
