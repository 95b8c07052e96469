"""A sealed store over HTTP and on the page: everything works, and a session that cannot be read says why."""

import pytest
from http_clients import TOKEN, client_of

import midturn
from midturn.stores.registry import open_store
from midturn.stores.sealed.keys import new_key

KEYS, OTHER = midturn.Keys.parse(new_key("2026-11")), midturn.Keys.parse(new_key("2027-05"))
PROBLEMS = {
    "forged": ("Tampered", "session 'forged': it is not sealed"),
    "lost": ("WrongKey", "session 'lost': is sealed with key '2027-05', and the keys at hand are 2026-11"),
}
HTML = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/html"}


@pytest.fixture
async def sealed(clerks):
    """A store with a session that waits, one with another key, and one that somebody put there without a key."""
    inner = await open_store("memory://")
    for keys, session in ((OTHER, "lost"), (False, "forged")):
        store = await midturn.open(store=inner, keys=keys)
        await store.session(session, clerks.support).run(task="hello")
    async with midturn.open(store=inner, keys=KEYS, drain=0) as store:
        await store.session("case-1", clerks.support, labels={"team": "claims"}).run(task="pay Ann")
        yield store


@pytest.fixture
def served(sealed, clerks):
    return midturn.asgi(sealed, [clerks.support], token=TOKEN, by="ann@desk")


async def test_the_api_works_on_a_sealed_store_and_names_what_it_cannot_read(served):
    async with client_of(served, base="http://localhost/api") as api:
        listed = {each["session"]: each for each in (await api.get("/sessions")).json()["sessions"]}
        assert listed["case-1"]["status"] == "waiting"
        assert {name for name, each in listed.items() if each["problem"]} == set(PROBLEMS)
        for session, (kind, problem) in PROBLEMS.items():
            assert problem in listed[session]["problem"]
            for path in ("", "/turns", "/questions", "/lineage", "/checkpoints/1"):
                answer = await api.get(f"/sessions/{session}{path}")
                found = answer.json()
                assert (answer.status_code, found["title"]) == (500, kind), path
                assert problem in found["detail"]
            found = (await api.post(f"/sessions/{session}/turns", json={"task": "hello"})).json()
            assert (found["title"], found["status"]) == (kind, 500)
        [waiting] = (await api.get("/questions")).json()["waiting"]
        assert waiting["session"] == "case-1"
        answer = await api.post("/sessions/case-1/answer", json={"answer": "approve"})
        assert answer.status_code == 200, answer.text
        audit = (await api.get("/audit")).json()["acts"]
        assert ("case-1", "approval") in {(entry["session"], entry["what"]) for entry in audit}
        unreadable = {entry["session"] for entry in audit if entry["what"] == "unreadable"}
        assert unreadable == set(PROBLEMS)


async def test_the_pages_work_on_a_sealed_store_and_show_what_they_cannot_read(served):
    async with client_of(served, headers=HTML) as page:
        listed = (await page.get("/")).text
        assert "case-1" in listed
        found = (await page.get("/sessions.json")).json()["sessions"]
        for session, (_, problem) in PROBLEMS.items():
            assert problem.replace("'", "&#39;") in listed
            assert problem in next(each["problem"] for each in found if each["session"] == session)
            shown = await page.get(f"/s/{session}")
            assert (shown.status_code, problem.replace("'", "&#39;") in shown.text) == (500, True)
            plain = await page.get(f"/s/{session}.json")
            assert (plain.status_code, plain.json()["detail"]) == (500, problem)
        case = await page.get("/s/case-1")
        assert (case.status_code, "pay Ann" in case.text, "NL12" in case.text) == (200, True, True)
        assert "NL12" in (await page.get("/inbox")).text
        assert (await page.get("/audit")).status_code == 200
