"""docs/reference/http.md and docs/how-to/serve.md: the session with curl, the routes, and the app with a login."""

import ast
import json
import re
import shlex
import sys
from pathlib import Path

import httpx
import pytest

import midturn

ROOT = Path(__file__).parents[2]
HTTP = (ROOT / "docs" / "reference" / "http.md").read_text()
SERVE = (ROOT / "docs" / "how-to" / "serve.md").read_text()
CALL = re.compile(r"^\$ curl (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@pytest.fixture
def clerks(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "serve")
    import clerks

    yield clerks
    del sys.modules["clerks"]


def client_of(app, **headers):
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost", headers=headers)


async def test_the_server_answers_what_the_page_says(clerks):
    calls = [call for console in re.findall(r"```console\n(.*?)```", HTTP, re.DOTALL) for call in CALL.findall(console)]
    assert len(calls) == 6
    async with (
        midturn.open("memory://") as store,
        client_of(midturn.asgi(store, [clerks.support], token="t")) as client,
    ):
        for words, expected in calls:
            url, *options = shlex.split(words.replace("$URL", "http://localhost").replace("$TOKEN", "t"))
            pairs = list(zip(options[::2], options[1::2], strict=True))
            headers = dict(value.split(": ") for name, value in pairs if name == "-H")
            body = next((json.loads(value) for name, value in pairs if name == "--json"), None)
            answer = await client.request("GET" if body is None else "POST", url, json=body, headers=headers)
            pattern = ".*".join(map(re.escape, expected.strip().split("…")))
            assert re.fullmatch(pattern, answer.text.strip(), re.DOTALL), (words, answer.text)


async def test_the_page_has_every_route(clerks):
    async with midturn.open("memory://") as store, client_of(midturn.asgi(store, token="t")) as client:
        found = (await client.get("/api/openapi.json", headers={"Authorization": "Bearer t"})).json()
    routes = {f"{method.upper()} {path}" for path, methods in found["paths"].items() for method in methods}
    documented = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", HTTP, re.MULTILINE))
    assert {route.replace(" ", " /api", 1) for route in documented} == {
        route for route in routes if route.partition(" ")[2].startswith("/api/")
    }


def test_the_page_has_every_status():
    from midturn.serve.problems import STATUS

    section = HTTP[HTTP.index("## Errors") :]
    for kind, status in STATUS.items():
        [row] = [row for row in section.splitlines() if f"`{kind.__name__}`" in row and str(status) in row]
        assert row.startswith("|")


async def test_the_app_with_a_login_and_tenants_works(clerks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"support": clerks.support, "__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", SERVE, re.DOTALL):
        exec(compile(ast.parse(block), "serve.md", "exec"), names)
    app = names["app"]
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://desk.example.com/desk/api") as client:
            ann, bob = ({"X-Login": login} for login in names["PEOPLE"])
            assert (await client.get("/sessions")).status_code == 401
            assert (await client.post("/sessions/a/turns", json={"task": "hello"}, headers=ann)).status_code == 200
            assert (await client.get("/sessions/a", headers=ann)).json()["labels"] == {"team": "claims"}
            assert (await client.get("/sessions/a", headers=bob)).status_code == 404
    assert names["authorize"](midturn.Principal(name="bob"), "read", None)
    assert not names["authorize"](midturn.Principal(name="bob"), "delete", None)
