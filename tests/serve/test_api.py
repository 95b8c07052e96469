"""The API: what each route answers, and what clients rely on: keys, ETags, waiting, streams."""

import asyncio

import pytest
from http_clients import TOKEN, client_of, events

import midturn


async def run(api, session, task, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return await api.post(f"/sessions/{session}/turns", json={"task": task, "blueprint": "support"}, headers=headers)


async def test_a_turn_runs_and_is_read_back(api):
    answer = await run(api, "case-42", "hello")
    assert answer.status_code == 200
    assert answer.headers["location"] == "/api/sessions/case-42/turns/1"
    turn = answer.json()
    assert (turn["session"], turn["turn"], turn["status"], turn["questions"]) == ("case-42", 1, "done", [])
    assert turn["messages"][-1]["content"] == "Noted: hello"
    assert [call["kind"] for call in turn["calls"]] == ["model"]
    assert (await api.get("/sessions/case-42/turns/1")).json() == turn
    session = (await api.get("/sessions/case-42")).json()
    assert (session["status"], session["blueprint"], session["turns"]) == ("idle", "support", 1)
    page = (await api.get("/sessions/case-42/turns")).json()
    assert [each["turn"] for each in page["turns"]] == [1]
    assert page["before"] is None


@pytest.mark.parametrize("session", ["a/b", "..", ".", "~x", "ä %2F?#", "x.json", "\n", "a" * 200])
async def test_any_id_is_one_segment_of_a_path(api, session):
    from midturn.serve.paths import segment

    answer = await run(api, segment(session), "hello")
    assert answer.json()["session"] == session
    where = answer.headers["location"].removeprefix("/api")
    assert (await api.get(where)).json()["session"] == session


async def test_the_turns_of_a_long_session_come_in_pages(api, store, clerks):
    for number in range(5):
        await store.session("case", clerks.support).run(f"task {number}")
    first = (await api.get("/sessions/case/turns?last=2")).json()
    assert [turn["turn"] for turn in first["turns"]] == [4, 5]
    second = (await api.get(f"/sessions/case/turns?last=2&before={first['before']}")).json()
    assert [turn["turn"] for turn in second["turns"]] == [2, 3]
    third = (await api.get(f"/sessions/case/turns?last=2&before={second['before']}")).json()
    assert ([turn["turn"] for turn in third["turns"]], third["before"]) == ([1], None)


async def test_the_same_key_counts_once_quoted_or_bare(api, store):
    first = await run(api, "case", "hello", Idempotency_Key='"mail-8812"')
    second = await run(api, "case", "hello", Idempotency_Key="mail-8812")
    assert first.json() == second.json()
    assert first.json()["key"] == "mail-8812"
    assert (await store.info("case")).turns == 1
    third = await run(api, "case", "hello", Idempotency_Key=r'"a \"b\" \\"')
    assert third.json()["key"] == r'a "b" \\'.replace(r"\\", "\\")


async def test_a_key_of_another_task_is_422_and_a_broken_one_400(api):
    await run(api, "case", "hello", Idempotency_Key="k")
    answer = await run(api, "case", "goodbye", Idempotency_Key="k")
    assert (answer.status_code, answer.json()["title"], answer.json()["key"]) == (422, "Conflict", "k")
    for key in ('"', '"abc', "", '""'):
        assert (await run(api, "case", "hello", Idempotency_Key=key)).status_code == 400
    assert (await run(api, "case", "hello", Idempotency_Key="x" * 501)).status_code == 422


async def test_a_repetition_meets_409_while_the_turn_runs_and_may_follow_it(api, clerks):
    started = await run(api, "case", "wait", Idempotency_Key="k", Prefer="respond-async")
    assert (started.status_code, started.json()["status"]) == (202, "running")
    again = await run(api, "case", "wait", Idempotency_Key="k")
    assert (again.status_code, again.headers["retry-after"]) == (409, "1")
    assert again.headers["location"] == started.headers["location"]
    assert (await run(api, "case", "wait", Idempotency_Key="k", Prefer="wait=0")).status_code == 202
    other = await run(api, "case", "other", Idempotency_Key="k")
    assert other.status_code == 422
    follower = asyncio.create_task(run(api, "case", "wait", Idempotency_Key="k", Accept="text/event-stream"))
    await asyncio.sleep(0)
    clerks.GO.set()
    assert events((await follower).text)[-1][1:] == ("end", {"session": "case", "turn": 1, "status": "done"})
    assert (await run(api, "case", "wait", Idempotency_Key="k")).json()["status"] == "done"


async def test_a_client_waits_as_long_as_it_prefers(api, clerks):
    assert (await run(api, "case", "wait", Prefer="wait=0")).status_code == 202
    clerks.GO.set()
    assert (await run(api, "case", "wait", Prefer="respond-async, wait=100")).status_code == 200


async def test_a_stream_has_numbered_events_and_continues_after_the_last_one_seen(api):
    answer = await run(api, "case", "hello there", Accept="text/event-stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = events(answer.text)
    assert [each[0] for each in found] == [*(f"1.{number}" for number in range(1, len(found))), None]
    assert found[-1][1:] == ("end", {"session": "case", "turn": 1, "status": "done"})
    for last, rest in (("1.2", found[2:]), ("7.2", found), ("nonsense", found), ("1.99999999999", found)):
        again = await api.get("/sessions/case/turns/1/events", headers={"Last-Event-ID": last})
        assert events(again.text) == rest


async def test_polling_an_unchanged_session_is_a_304(api):
    await run(api, "case", "pay")
    paths = ["", "/turns", "/turns/1", "/questions", "/lineage"]
    everywhere = [*(f"/sessions/case{path}" for path in paths), "/sessions", "/counts", "/questions", "/audit"]
    tags = {}
    for path in everywhere:
        answer = await api.get(path)
        assert answer.status_code == 200
        tags[path] = answer.headers["etag"]
        assert tags[path].startswith('"')
        same = await api.get(path, headers={"If-None-Match": f'"other", {tags[path]}'})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tags[path])
    await api.post("/sessions/case/answer", json={"answer": "approve"})
    await api.post("/sessions/case/fork", json={"session": "case-b"})
    for path in everywhere:
        assert (await api.get(path, headers={"If-None-Match": tags[path]})).status_code == 200, path


async def test_the_etag_of_a_session_that_runs_says_so_because_its_worker_may_die_without_a_write(api, clerks):
    await run(api, "case", "wait", Prefer="respond-async")
    running = (await api.get("/sessions/case")).headers["etag"]
    seq = (await api.get("/sessions/case")).json()["seq"]
    assert running == f'"{seq}-running"'
    clerks.GO.set()


async def test_a_turn_that_asks_waits_and_an_answer_continues_it(api):
    asked = await run(api, "case", "pay")
    assert (asked.status_code, asked.json()["status"]) == (200, "waiting")
    [question] = asked.json()["questions"]
    assert (question["tool"], question["arguments"]) == ("pay", {"iban": "NL12", "amount": 40.0})
    assert question["answers"] == ["approve", "deny: REASON"]
    [waiting] = (await api.get("/questions")).json()["waiting"]
    assert (waiting["session"], waiting["turn"], waiting["questions"]) == ("case", 1, [question])
    changed = {"answer": "approve", "question": question["id"], "arguments": {"amount": 4.0}}
    done = await api.post("/sessions/case/answer", json=changed)
    assert (done.status_code, done.json()["status"]) == (200, "done")
    [decision] = done.json()["decisions"]
    assert (decision["by"], decision["changed"]) == ("ann@desk", {"amount": 4.0})
    late = await api.post("/sessions/case/answer", json=changed)
    assert (late.status_code, late.json()["title"]) == (409, "Conflict")
    assert "retry-after" not in late.headers
    [act] = (await api.get("/audit?by=ann@desk")).json()["acts"]
    assert (act["session"], act["what"], act["turn"]) == ("case", "approval", 1)


async def test_an_answer_to_what_has_changed_since_is_412(api):
    asked = await run(api, "case", "pay")
    seen = asked.headers["etag"]
    await api.patch("/sessions/case", json={"labels": {"team": "claims"}})
    late = await api.post("/sessions/case/answer", json={"answer": "approve"}, headers={"If-Match": seen})
    assert (late.status_code, late.json()["title"]) == (412, "Changed")
    now = (await api.get("/sessions/case")).json()["seq"]
    done = await api.post("/sessions/case/answer", json={"answer": "approve"}, headers={"If-Match": str(now)})
    assert done.json()["status"] == "done"


ACTS = [
    ("POST", "/sessions/case/rewind", {"checkpoint": 1}),
    ("POST", "/sessions/case/discard", None),
    ("PATCH", "/sessions/case", {"labels": {"a": "b"}}),
    ("DELETE", "/sessions/case", None),
]


@pytest.mark.parametrize(("method", "path", "body"), ACTS)
async def test_what_was_decided_on_an_older_session_is_412(api, store, method, path, body):
    await run(api, "case", "hello")
    seen = (await api.get("/sessions/case")).headers["etag"]
    await run(api, "case", "more")
    before = await store.info("case")
    late = await api.request(method, path, json=body, headers={"If-Match": seen})
    assert late.status_code == 412
    assert late.headers["etag"] == f'"{before.seq}"'
    assert await store.info("case") == before
    now = await api.request(method, path, json=body, headers={"If-Match": late.headers["etag"]})
    assert now.status_code in (200, 204)


@pytest.mark.parametrize("act", ACTS)
async def test_a_change_after_the_check_of_a_decision_is_412_too(api, store, monkeypatch, act):
    method, path, body = act

    def blind(info, if_match):
        """Check as if the session had changed just afterwards."""
        monkeypatch.undo()
        return int(if_match)

    await run(api, "case", "hello")
    seen = await store.info("case")
    await run(api, "case", "more")
    before = await store.info("case")
    monkeypatch.setattr("midturn.serve.replies.check_seen", blind)
    late = await api.request(method, path, json=body, headers={"If-Match": str(seen.seq)})
    assert (late.status_code, late.json()["title"]) == (412, "Changed")
    assert await store.info("case") == before


async def test_words_answer_a_person_who_is_asked(api):
    said = {"text": "hello", "blueprint": "desk"}
    asked = await api.post("/sessions/case/say", json=said, headers={"Idempotency-Key": "1"})
    assert asked.json()["status"] == "waiting"
    busy = await api.post("/sessions/case/turns", json={"task": "another"})
    assert (busy.status_code, busy.json()["owner"]) == (409, "a human")
    assert "retry-after" not in busy.headers
    done = await api.post("/sessions/case/say", json={"text": "as ann says"}, headers={"Idempotency-Key": "2"})
    assert (done.json()["status"], done.json()["turn"]) == ("done", 1)
    assert done.json()["decisions"][0]["by"] == "ann@desk"
    again = await api.post("/sessions/case/say", json={"text": "as ann says"}, headers={"Idempotency-Key": "2"})
    assert again.json() == done.json()


async def test_a_failed_turn_is_a_problem_and_is_resumed_or_discarded(api):
    failed = await run(api, "case", "fail")
    assert failed.status_code == 500
    assert failed.headers["content-type"] == "application/problem+json"
    found = failed.json()
    assert (found["title"], found["turn"], found["session"]) == ("TurnFailed", 1, "case")
    assert found["error"]["message"] == found["detail"]
    assert "Traceback" not in failed.text
    assert (await api.get("/sessions/case/turns/1")).json()["status"] == "failed"
    assert (await api.post("/sessions/case/resume")).status_code == 500
    assert (await api.post("/sessions/case/discard")).json() == {"session": "case", "turn": 1}
    assert (await api.post("/sessions/case/discard")).json() == {"session": "case", "turn": None}
    assert (await api.post("/sessions/case/resume", json={})).json() == {"session": "case", "turn": None}


async def test_a_running_turn_is_cancelled_and_resumed(api, clerks):
    await run(api, "case", "wait", Prefer="respond-async")
    cancelled = await api.post("/sessions/case/turns/1/cancel")
    assert cancelled.json() == {"session": "case", "turn": 1, "cancelled": True}
    assert (await api.get("/sessions/case")).json()["status"] == "cancelled"
    clerks.GO.set()
    assert (await api.post("/sessions/case/resume")).json()["status"] == "done"
    assert (await api.post("/sessions/case/turns/1/cancel")).json()["cancelled"] is False


async def test_a_session_is_forked_rewound_compared_and_replayed(api):
    await run(api, "case", "one")
    await run(api, "case", "two")
    fork = await api.post("/sessions/case/fork", json={"session": "case/b", "checkpoint": 1, "why": "try"})
    assert (fork.status_code, fork.headers["location"]) == (201, "/api/sessions/case%2Fb")
    assert fork.json()["forked_from"] == {"session": "case", "checkpoint": 1}
    taken = await api.post("/sessions/case/fork", json={"session": "case/b"})
    assert taken.status_code == 409
    lineage = (await api.get("/sessions/case%2Fb/lineage")).json()
    assert [each["session"] for each in lineage["ancestors"]] == ["case"]
    own = (await api.get("/sessions/case/diff?before=1&after=2")).json()
    other = (await api.get("/sessions/case/diff?before=1&after=1&other=case/b")).json()
    assert own["conversations"]
    assert not other["conversations"]
    assert other["after"] == {"session": "case/b", "checkpoint": 1}
    assert (await api.post("/sessions/case/turns/2/replay")).json()["same"] is True
    rewound = await api.post("/sessions/case/rewind", json={"checkpoint": 1, "why": "wrong"})
    assert rewound.json()["checkpoint"] == 3
    view = (await api.get("/sessions/case/checkpoints/3")).json()
    assert view["state"] == (await api.get("/sessions/case/checkpoints/1")).json()["state"]
    assert (await api.get("/sessions/case/export")).json() == view["state"]
    assert (await api.get("/sessions/case/export?to=openai-chat&checkpoint=2")).json()["checkpoint"] == 2
    acts = (await api.get("/audit?session=case")).json()["acts"]
    assert [(act["what"], act["why"], act["by"]) for act in acts] == [("rewind", "wrong", "ann@desk")]


async def test_a_rewind_over_an_open_turn_has_to_discard_it(api):
    await run(api, "case", "one")
    await run(api, "case", "pay")
    answer = await api.post("/sessions/case/rewind", json={"checkpoint": 1})
    assert (answer.status_code, answer.json()["title"]) == (409, "TurnOpen")
    answer = await api.post("/sessions/case/rewind", json={"checkpoint": 1, "discard": True})
    assert (answer.status_code, answer.json()["status"]) == (200, "idle")


async def test_labels_are_set_removed_and_filtered_by(api):
    await run(api, "a", "hello")
    await run(api, "b", "hello")
    both = await api.patch("/sessions/a", json={"labels": {"team": "claims", "new": "yes"}})
    assert both.json()["labels"] == {"team": "claims", "new": "yes"}
    one = await api.patch("/sessions/a", json={"labels": {"new": None}})
    assert one.json()["labels"] == {"team": "claims"}

    async def listed(query):
        return [each["session"] for each in (await api.get(f"/sessions?{query}")).json()["sessions"]]

    assert await listed("label=team=claims") == ["a"]
    assert await listed("label=team=claims&label=new=yes") == []
    assert await listed("prefix=b") == ["b"]
    assert await listed("order=id") == ["a", "b"]
    assert await listed("status=waiting&status=failed") == []
    assert await listed("since=2999-01-01T00:00:00Z") == []
    wrong = await api.get("/sessions?label=team")
    assert (wrong.status_code, wrong.json()["differences"][0]["path"]) == (422, "label")


async def test_the_pages_of_a_list_have_each_session_once(api, store, clerks):
    for number in range(5):
        await store.session(f"s{number}", clerks.support).run("hello")
    found, after = [], ""
    while after is not None:
        page = (await api.get("/sessions", params={"limit": 2, "after": after})).json()
        found += [each["session"] for each in page["sessions"]]
        after = page["next"]
    assert found == ["s4", "s3", "s2", "s1", "s0"]
    assert (await api.get("/counts")).json()["idle"] == 5


async def test_the_inbox_comes_in_pages_oldest_first(api):
    for name in "abc":
        await run(api, name, "pay")
    first = (await api.get("/questions?limit=2")).json()
    assert [each["session"] for each in first["waiting"]] == ["a", "b"]
    second = (await api.get("/questions", params={"limit": 2, "after": first["next"]})).json()
    assert ([each["session"] for each in second["waiting"]], second["next"]) == (["c"], None)


async def test_a_deleted_session_keeps_who_deleted_it(api):
    await run(api, "case", "hello")
    assert (await api.delete("/sessions/case?why=asked")).status_code == 204
    gone = (await api.get("/sessions/case")).json()
    assert (gone["status"], gone["deleted"]["by"], gone["deleted"]["why"]) == ("deleted", "ann@desk", "asked")
    for answer in (
        await api.get("/sessions/case/turns"),
        await api.delete("/sessions/case"),
        await run(api, "case", "again"),
        await api.post("/sessions/case/fork", json={"session": "b"}),
    ):
        assert (answer.status_code, answer.json()["title"]) == (410, "SessionDeleted")


async def test_an_answer_for_a_session_of_another_worker_is_recorded(store, clerks):
    await store.session("case", clerks.support).run("pay")
    async with client_of(midturn.asgi(store, [], token=TOKEN), base="http://localhost/api") as api:
        answer = await api.post("/sessions/case/answer", json={"answer": "approve"})
        assert (answer.status_code, answer.json()["status"]) == (200, "interrupted")
        refused = await run(api, "case", "hello")
        assert (refused.status_code, refused.json()["title"]) == (422, "InvalidArgument")
        stream = await api.get("/sessions/case/turns/1/events")
        assert events(stream.text)[-1][1] == "error"
    result = await store.session("case", clerks.support).resume()
    assert result.messages[-1].content == "Done: paid 40.0 to NL12"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nothing", 404),
        ("GET", "/nothing", 404),
        ("PUT", "/api/sessions", 405),
        ("GET", "/api/sessions/nobody", 404),
        ("POST", "/api/sessions/nobody/resume", 404),
        ("GET", "/api/sessions/nobody/turns/1/events", 404),
        ("GET", "/api/sessions?limit=x", 422),
        ("GET", "/api/sessions?after=nonsense", 422),
        ("GET", f"/api/sessions/{'x' * 600}", 422),
        ("POST", "/api/sessions/a/turns", 422),
        ("GET", "/api/audit?since=yesterday", 422),
    ],
)
async def test_every_error_is_a_problem(app, method, path, status):
    async with client_of(app) as client:
        answer = await client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["type"] == f"urn:midturn:error:{problem['title']}"
    assert problem["error"] == {"type": problem["title"], "message": problem["detail"]}
    assert (method != "PUT") or answer.headers["allow"] == "GET"


async def test_an_unknown_key_in_a_body_is_named(api):
    answer = await api.post("/sessions/case/turns", json={"task": "x", "tsak": "y", "labels": {"a": 1}})
    assert answer.status_code == 422
    assert {each["path"] for each in answer.json()["differences"]} == {"body.tsak", "body.labels.a"}


async def test_health_needs_no_login_and_readiness_asks_the_store(app, store, monkeypatch):
    async with client_of(app, {}, "http://10.1.2.3:8000") as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).status_code == 200

        async def gone(_):
            raise midturn.StoreUnavailable("no route to postgresql://ann:secret@host")

        monkeypatch.setattr(store.store, "head", gone)
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.get("/readyz")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "secret" not in answer.text


async def test_an_app_that_is_mounted_names_its_own_addresses(store, clerks):
    from fastapi import FastAPI

    outer = FastAPI()
    outer.mount("/desk", midturn.asgi(store, [clerks.support], token=TOKEN))
    async with client_of(outer, base="http://localhost/desk/api") as api:
        answer = await run(api, "a%2Fb", "hello")
        assert answer.headers["location"] == "/desk/api/sessions/a%2Fb/turns/1"
        assert (await api.get("http://localhost/desk/api/sessions/a%2Fb")).json()["session"] == "a/b"
        assert (await api.get("http://localhost/desk/healthz", headers={"Authorization": ""})).status_code == 200
        login = await api.get(f"http://localhost/desk/?token={TOKEN.replace(' ', '+')}&x=1")
        assert (login.status_code, login.headers["location"]) == (303, "/desk/?x=1")
