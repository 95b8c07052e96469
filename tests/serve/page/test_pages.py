"""The pages as HTML, without a browser: what they show, what their forms accept, and what they keep out."""

import asyncio
import base64
import re
from collections import Counter
from dataclasses import replace
from html import unescape

import front_desk
import httpx
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MultiModalMessage
from autogen_core import Image

import midturn
from midturn.record.head import Kind, Write
from midturn.serve.web.acts import ACTS
from midturn.serve.web.live import sent
from midturn.serve.web.views import LARGEST, bubble_of
from midturn.stores.memory import MemoryStore
from midturn.stores.wrapper import StoreWrapper
from midturn.testing import ScriptedModel, ToolCall

HERE = {"Authorization": "Bearer secret", "Accept": "text/html"}


async def asked(store, session="case-1", **options):
    case = store.session(session, front_desk.support, **options)
    return (await case.run(task="Please refund order A1.")).waiting.questions[0]


def fields(html, **changed):
    """Return what a browser sends of the form with changed arguments, with some fields typed anew."""
    form = html[html.rindex("<form", 0, html.index('name="change"')) :]
    form = form[: form.index("</form>")]
    found = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form))
    labels = {
        name.strip(): field
        for field, name in re.findall(r'<label for="\S*?(argument\.\d+)" class="mono">([^<]+)', form)
    }
    for field, text in re.findall(r'<textarea id="\S+" name="(\S+)"[^>]*>\n(.*?)</textarea>', form, re.DOTALL):
        found[field] = unescape(text).replace("\n", "\r\n")
    for field, text in re.findall(r'<input id="\S+" name="(\S+)" value="([^"]*)"', form):
        found[field] = unescape(text)
    return found | {"answer": "approve"} | {labels[name]: text for name, text in changed.items()}


async def csrf_of(client):
    found = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/s/case-1")).text)
    return found[1]


async def test_every_filter_of_the_list_is_in_its_address(store, make):
    client = make([front_desk.support])
    for number in range(60):
        labels = {"team": "claims"} if number % 2 else {"team": "legal", "odd": "a&b=c"}
        await store.session(f"case-{number:02}", front_desk.support, labels=labels).run(task="hello")
    first = (await client.get("/?label=team%3Dclaims&prefix=case-")).text
    assert len(re.findall(r'<tr id="row-', first)) == 30
    assert "Older" not in first
    whole = (await client.get("/")).text
    assert len(re.findall(r'<tr id="row-', whole)) == 50
    older = unescape(re.search(r'href="/(\?[^"]+)" rel="next"', whole)[1])
    rest = (await client.get(f"/{older}")).text
    assert len(re.findall(r'<tr id="row-', rest)) == 10
    link = unescape(re.search(r'class="tag" href="([^"]+)">odd=', whole)[1])
    assert len(re.findall(r'<tr id="row-', (await client.get(link)).text)) == 30
    found = (await client.get(f"/sessions.json{older}")).json()
    assert [each["session"] for each in found["sessions"]] == [f"case-{number:02}" for number in range(9, -1, -1)]


async def test_the_list_counts_by_status_and_shows_the_last_words(store, make):
    client = make([front_desk.support])
    await asked(store)
    html = (await client.get("/?status=waiting")).text
    assert re.search(r'aria-current="true">waiting <b>1</b>', html)
    assert "May pay(" in html
    assert 'href="/s/case-1"' in html


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/", "midturn chat app:support case-1"),
        ("/?prefix=none", "Show all sessions"),
        ("/inbox", "@midturn.tool(approval=True)"),
        ("/audit", "Nobody did anything"),
        ("/migrations", "No sessions yet"),
    ],
)
async def test_an_empty_page_says_why_and_what_to_do(make, path, text):
    answer = await make().get(path)
    assert answer.status_code == 200
    assert text in answer.text


async def test_a_form_needs_the_value_that_this_page_gave_it(store, make):
    question, client = await asked(store), make([front_desk.support])
    given = {"question": question.id, "turn": "1", "answer": "approve"}
    for csrf in ({}, {"csrf": ""}, {"csrf": "guessed"}):
        answer = await client.post("/s/case-1/answer", data=given | csrf)
        assert answer.status_code == 403
    assert (await store.info("case-1")).status == "waiting"
    assert (await client.post("/s/case-1/answer", data=given | {"csrf": await csrf_of(client)})).status_code == 200
    assert (await store.info("case-1")).status != "waiting"


async def test_only_arguments_that_somebody_changed_are_recorded_as_changed(store, make):
    await asked(store)
    client = make()
    html = (await client.get("/inbox")).text
    assert "-about" not in html  # descriptions that only repeat the name of an argument
    answer = await client.post("/s/case-1/answer", data=fields(html, amount="12.5", urgent="true"))
    assert answer.status_code == 200
    assert "This server has no agents for it" in answer.text
    assert "midturn resume APP case-1" in answer.text
    [decision] = (await store.session("case-1").turn(1)).decisions
    assert decision.changed == {"amount": 12.5, "urgent": True}
    assert decision.by == "ann@desk"
    await store.session("case-1", front_desk.support).resume()
    assert "paid 12.50 EUR" in (await client.get("/s/case-1")).text


async def test_arguments_that_cannot_be_seen_are_not_changed_by_a_form(store, make):
    call = ToolCall("pay", {"iban": "NL\u200b12\r\n\u202e", "amount": 1.0})

    def build():
        model = ScriptedModel({"paid": "Done.", "": call})
        return AssistantAgent("clerk", model, tools=[front_desk.pay], max_tool_iterations=2)

    other = midturn.Blueprint("other", build)
    await store.session("case-1", other).run(task="go")
    client = make()
    html = (await client.get("/inbox")).text
    assert "NL\\u200b12" in html
    await client.post("/s/case-1/answer", data=fields(html, amount="2"))
    [decision] = (await store.session("case-1").turn(1)).decisions
    assert decision.changed == {"amount": 2}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("amount", "forty", "must be a number, such as 40.5"),
        ("amount", "", "must be a number"),
        ("amount", '"40"', "is not of type"),
        ("urgent", "perhaps", "must be JSON"),
    ],
)
async def test_arguments_that_do_not_fit_the_tool_are_shown_again_with_what_is_wrong(store, make, name, text, why):
    await asked(store)
    client = make([front_desk.support])
    data = fields((await client.get("/inbox")).text, iban="typed by hand", **{name: text})
    answer = await client.post("/s/case-1/answer", data=data)
    assert answer.status_code == 422
    assert why in unescape(answer.text)
    assert "typed by hand" in answer.text
    assert "Nothing was recorded" in answer.text
    assert (await store.info("case-1")).status == "waiting"


async def test_a_call_in_doubt_needs_a_result_to_be_done(store, make):
    result = await doubt(store)
    client = make()
    assert "Did it take effect?" in (await client.get("/inbox")).text
    given = {"csrf": await csrf_of(client), "question": result.waiting.id, "turn": "1", "answer": "done"}
    assert (await client.post("/s/case-1/answer", data=given)).status_code == 422
    assert (await client.post("/s/case-1/answer", data=given | {"text": "it was sent to bob"})).status_code == 200
    [decision] = (await store.session("case-1").turn(1)).decisions
    assert decision.answer == "done: it was sent to bob"


async def doubt(store):
    """Take the lease from a worker while it sends a mail, and let another one find the turn."""
    begun, end = asyncio.Event(), asyncio.Event()

    @midturn.tool
    async def send_mail(to: str, subject: str) -> str:
        """Send a mail."""
        begun.set()
        await end.wait()
        return "sent to nobody"

    def build():
        return AssistantAgent("clerk", ScriptedModel(front_desk.answers), tools=[send_mail], max_tool_iterations=4)

    running = asyncio.create_task(store.session("case-1", midturn.Blueprint("support", build)).run(task="write to me"))
    await begun.wait()
    head = await store.store.head("case-1")
    await store.store.write(
        Write(session="case-1", seq=head.seq, epoch=head.epoch + 1, status="running", token="gone", data=head.data)
    )
    end.set()
    with pytest.raises(midturn.LeaseLost):
        await running
    return await store.session("case-1", midturn.Blueprint("support", build)).resume()


async def test_a_late_answer_says_who_was_faster_and_what_they_decided(store, make):
    question, client = await asked(store), make()
    given = {"csrf": await csrf_of(client), "question": question.id, "turn": "1", "answer": "approve"}
    await store.session("case-1").answer("deny: no budget", by="bob@desk")
    answer = await client.post("/s/case-1/answer", data=given)
    assert answer.status_code == 409
    assert "bob@desk was faster" in answer.text
    assert "deny: no budget" in answer.text


async def test_a_server_that_only_reads_has_no_forms(store, make):
    question = await asked(store)
    client = make([front_desk.support], token="secret", read_only=True)
    await store.session("case-1").discard()
    await store.session("case-1", front_desk.support).run(task="hello")
    for path in ("/", "/inbox", "/s/case-1", "/s/case-1/at/2", "/s/case-1/lineage"):
        html = (await client.get(path)).text
        assert 'method="post"' not in html, path
        assert "/do/" not in html, path
    for act in ACTS:
        answer = await client.get(f"/s/case-1/do/{act}")
        assert (answer.status_code, "this server only reads" in answer.text) == (403, True)
    assert (await client.post("/s/case-1/answer", data={"question": question.id})).status_code == 403


async def test_people_see_and_answer_only_what_is_theirs(store, make):
    await asked(store, "case-1", labels={"tenant": "a"})
    await asked(store, "other-2", labels={"tenant": "b"})
    await store.session("other-2").answer("deny: no", by="eve")

    def who(request):
        return midturn.Principal(name="ann", labels={"tenant": "a"})

    client = make([front_desk.support], authenticate=who)
    for path in (
        "/",
        "/inbox",
        "/audit?since=all",
        "/migrations",
        "/sessions.json",
        "/inbox.json",
        "/audit.json?since=all",
    ):
        text = (await client.get(path)).text
        assert "other-2" not in text, path
    for path in ("", "/turns/1", "/at/1", "/diff", "/lineage", "/live", "/do/delete", ".json"):
        assert (await client.get(f"/s/other-2{path}")).status_code == 404, path
    csrf = await csrf_of(client)
    for path in ("/answer", "/say", "/do/delete", "/do/label"):
        assert (await client.post(f"/s/other-2{path}", data={"csrf": csrf, "text": "x"})).status_code in (404, 403), (
            path
        )


async def test_acts_ask_first_and_keep_the_reason(store, make):
    case = store.session("case-1", front_desk.support)
    for task in ("one", "two"):
        await case.run(task=task)
    client = make([front_desk.support])
    page = await client.get("/s/case-1/do/rewind?at=1")
    assert "marked as left behind" in page.text
    csrf = {"csrf": await csrf_of(client)}
    assert (await client.post("/s/case-1/do/rewind", data=csrf | {"at": "99"})).status_code == 404
    assert (await client.post("/s/case-1/do/rewind", data=csrf | {"at": "one"})).status_code == 422
    done = await client.post("/s/case-1/do/rewind", data=csrf | {"at": "1", "why": "wrong way"})
    assert "The session was rewound." in done.text
    assert "Left behind by turn 3" in done.text
    replayed = await client.post("/s/case-1/do/replay", data=csrf | {"at": "2"})
    assert "takes the same way" in unescape(replayed.text)
    labelled = await client.post("/s/case-1/do/label", data=csrf | {"labels": "team=claims\r\n\r\nowner=ann"})
    assert "owner=ann" in labelled.text
    assert (await client.post("/s/case-1/do/label", data=csrf | {"labels": "nonsense"})).status_code == 422
    assert (await store.info("case-1")).labels == {"team": "claims", "owner": "ann"}
    exported = await client.post("/s/case-1/do/export", data=csrf | {"at": "1", "to": "openai-chat"})
    assert exported.headers["content-disposition"].startswith("attachment")
    assert exported.json()["to"] == "openai-chat"
    forked = await client.post("/s/case-1/do/fork", data=csrf | {"at": "1", "new": "case/2"})
    assert str(forked.url).endswith("/s/case%2F2")
    deleted = await client.post("/s/case-1/do/delete", data=csrf | {"why": "asked to"})
    assert "asked to" in deleted.text
    assert "Only its id is left" in deleted.text
    for act in ACTS:
        assert (await client.get(f"/s/case-1/do/{act}")).status_code == 410
    trail = (await client.get("/audit?session=case-1&since=all")).text
    assert "ann@desk" in trail


@pytest.mark.parametrize("at", ["9" * 5000, "٣", "-1", "1.5"])
async def test_a_number_that_is_none_is_shown_again_with_what_was_typed(store, make, at):
    await store.session("case-1", front_desk.support).run(task="one")
    client = make([front_desk.support])
    given = {"csrf": await csrf_of(client), "at": at, "why": "because", "new": "mine", "to": "openai-chat"}
    for act in ("rewind", "fork", "replay", "export"):
        answer = await client.post(f"/s/case-1/do/{act}", data=given)
        assert answer.status_code == 422, act
        assert "is not a number. Nothing was done." in answer.text
    assert "mine" in (await client.post("/s/case-1/do/fork", data=given)).text
    assert (await client.post("/s/case-1/answer", data=given | {"turn": at, "answer": "approve"})).status_code == 409
    assert (await store.info("case-1")).turns == 1


async def test_an_act_on_a_session_that_has_changed_since_asks_again(store, make):
    case = store.session("case-1", front_desk.support, labels={"team": "claims"})
    for task in ("one", "two"):
        await case.run(task=task)
    client = make([front_desk.support])
    csrf = {"csrf": await csrf_of(client)}
    pages = {act: (await client.get(f"/s/case-1/do/{act}")).text for act in ("rewind", "label", "delete", "discard")}
    await store.label("case-1", {"owner": "bob"})
    before = await store.info("case-1")
    for act, html in pages.items():
        seq = {"seq": re.search(r'name="seq" value="(\d+)"', html)[1]}
        late = await client.post(f"/s/case-1/do/{act}", data=csrf | seq | {"at": "1", "labels": "team=sales"})
        assert (late.status_code, await store.info("case-1")) == (409, before), act
        assert "The session has changed since this page asked. Look at it first. Nothing was done." in late.text
    again = {"seq": re.search(r'name="seq" value="(\d+)"', late.text)[1]}
    assert (await client.post("/s/case-1/do/label", data=csrf | again | {"labels": "team=sales"})).status_code == 200
    assert (await store.info("case-1")).labels == {"team": "sales"}


async def test_an_open_turn_is_rewound_only_if_somebody_gives_it_up(store, make):
    await store.session("case-1", front_desk.support).run(task="one")
    await asked(store)
    client = make([front_desk.support])
    csrf = {"csrf": await csrf_of(client)}
    refused = await client.post("/s/case-1/do/rewind", data=csrf | {"at": "1"})
    assert refused.status_code == 409
    assert "waits for an answer, and is still open. Nothing was done." in unescape(refused.text)
    done = await client.post("/s/case-1/do/rewind", data=csrf | {"at": "1", "discard": "1"})
    assert "The session was rewound." in done.text


async def test_a_fork_to_an_id_that_is_taken_asks_for_another(store, make):
    await store.session("case-1", front_desk.support).run(task="one")
    client = make([front_desk.support])
    taken = await client.post("/s/case-1/do/fork", data={"csrf": await csrf_of(client), "at": "1", "new": "case-1"})
    assert taken.status_code == 409
    assert "there is already a session 'case-1'; choose another id. Nothing was done." in unescape(taken.text)


async def test_a_running_turn_is_cancelled_by_the_server_that_runs_it_and_others_say_who_does(store, make):
    begun, end = asyncio.Event(), asyncio.Event()

    async def hang(messages):
        begun.set()
        await end.wait()

    slow = midturn.Blueprint("slow", lambda: AssistantAgent("clerk", ScriptedModel(hang)))
    run = await store.session("case-1", slow).start("hello")
    await begun.wait()
    client = make([slow])
    assert "Cancel the turn…" in (await client.get("/s/case-1")).text
    assert "Only the process that runs the turn can cancel it." in (await client.get("/s/case-1/do/cancel")).text
    csrf = {"csrf": await csrf_of(client)}
    async with midturn.open(store=store.store, drain=0) as other:  # the store of another server
        app = midturn.asgi(other, [slow], token="secret")
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HERE) as elsewhere:
            await elsewhere.get("/")
            there = {"csrf": elsewhere.cookies["midturn_csrf"]}
            busy = await elsewhere.post("/s/case-1/do/cancel", data=there)
            assert busy.status_code == 409
            assert "and only that process can cancel it. Nothing was done." in unescape(busy.text)
            problem = (await elsewhere.post("/api/sessions/case-1/turns/1/cancel")).json()
            assert "only that process can cancel it" in problem["detail"]
            assert problem["owner"] in problem["detail"]
        done = await client.post("/s/case-1/do/cancel", data=csrf)
        assert "The turn was cancelled." in done.text
        assert run.status == "cancelled"


async def test_a_failed_turn_can_be_resumed_or_given_up_on_its_page(store, make):
    case = store.session("case-1", front_desk.support)
    with pytest.raises(midturn.TurnFailed):
        await case.run(task="fail")
    client = make([front_desk.support])
    html = (await client.get("/s/case-1")).text
    assert "ZeroDivisionError" in html
    assert "/do/resume" in html
    done = await client.post("/s/case-1/do/discard", data={"csrf": await csrf_of(client)})
    assert "The turn was given up." in done.text
    assert (await store.info("case-1")).status == "idle"


async def test_a_session_is_begun_and_spoken_to_once_however_often_a_form_is_sent(store, make):
    client = make([front_desk.support, front_desk.claims])
    csrf = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/")).text)[1]
    given = {"csrf": csrf, "session": "new/1", "blueprint": "support", "text": "hello", "key": "k1"}
    for _ in range(2):
        answer = await client.post("/begin", data=given)
        assert str(answer.url).split("#")[0].endswith("/s/new%2F1")
    for _ in range(2):
        await client.post("/s/new%2F1/say", data={"csrf": csrf, "text": "and more", "key": "k2"})
    assert (await store.info("new/1")).turns == 2


async def test_beginning_a_session_never_speaks_to_one_that_is_there(store, make):
    await store.session("case-1", front_desk.claims).run(task="My bag was lost.")
    before = await store.info("case-1")
    client = make([front_desk.claims])
    given = {"csrf": await csrf_of(client), "session": "case-1", "text": "hello", "key": "k1"}
    answer = await client.post("/begin", data=given)
    assert (answer.status_code, "The id is taken" in answer.text) == (409, True)
    assert await store.info("case-1") == before


class Failing(StoreWrapper):
    """A store that cannot be reached, or whose rows of some sessions cannot be read."""

    def __init__(self, inner):
        super().__init__(inner)
        self.down = False
        self.damaged = {}

    async def head(self, session):
        self._check()
        return await super().head(session)

    async def heads(self, **limits):
        self._check()
        return await super().heads(**limits)

    async def rows(self, session, kind, **limits):
        self._check()
        found = await super().rows(session, kind, **limits)
        if kind not in self.damaged.get(session, ()):
            return found
        return [replace(row, data=b'{"v":1,"x"') for row in found]

    def _check(self):
        if self.down:
            raise midturn.StoreUnavailable("no connection to postgresql://ann:swordfish@db")


@pytest.fixture
async def failing():
    store = Failing(MemoryStore())
    async with midturn.open(store=store, drain=0) as opened:
        yield store, opened


@pytest.mark.parametrize("kind", [Kind.BODY, Kind.TURN, Kind.CHECKPOINT, Kind.CALL])
async def test_a_damaged_session_hides_no_other_and_can_be_deleted_on_its_page(failing, kind):
    rows, store = failing
    for session in ("bad", "good"):
        await store.session(session, front_desk.support).run(task="hello")
        await asked(store, session)
    rows.damaged["bad"] = {kind}
    app = midturn.asgi(store, [front_desk.support], token="secret")
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=HERE, follow_redirects=True
    ) as client:
        for path in ("/", "/inbox", "/inbox.json", "/migrations", "/api/questions", "/sessions.json"):
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert "good" in answer.text, path
        waiting = {each["session"]: each for each in (await client.get("/api/questions")).json()["waiting"]}
        assert waiting["good"]["problem"] is None
        assert waiting["bad"]["questions"] or "not JSON" in waiting["bad"]["problem"]
        page = await client.get("/s/bad")
        assert page.status_code == 200
        assert "A part of the record cannot be read" in page.text
        assert "/s/bad/do/delete" in page.text
        csrf = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/s/bad/do/delete")).text)[1]
        assert "Only its id is left" in (await client.post("/s/bad/do/delete", data={"csrf": csrf})).text


async def test_a_store_that_cannot_be_reached_is_a_page_and_no_secret(failing, caplog):
    rows, store = failing
    await asked(store)
    app = midturn.asgi(store, [front_desk.support], token="secret")
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=HERE) as client:
        csrf = await csrf_of(client)
        rows.down = True
        for path in ("/", "/inbox", "/s/case-1", "/s/case-1/at/1", "/audit", "/migrations", "/s/case-1/do/delete"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), path
            assert "The store cannot be reached" in answer.text, path
            assert "swordfish" not in answer.text, path
        for path in ("/s/case-1/answer", "/s/case-1/say", "/s/case-1/do/delete", "/begin"):
            answer = await client.post(path, data={"csrf": csrf, "session": "x", "text": "x", "turn": "1"})
            assert answer.status_code == 503, path
        assert (await client.get("/readyz")).status_code == 503
        rows.down = False
        assert (await client.get("/s/case-1")).status_code == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_the_parts_of_a_live_page_end_quietly_when_the_store_is_gone(failing):
    rows, store = failing
    await asked(store)

    async def changing():
        yield "one"
        rows.down = True
        await store.info("case-1")

    assert [text async for text in sent(changing())] == ["data: one\n\n"]


class Rows(StoreWrapper):
    """A store that counts what it returns."""

    def __init__(self, inner):
        super().__init__(inner)
        self.read = Counter()

    async def rows(self, session, kind, **limits):
        found = await super().rows(session, kind, **limits)
        self.read[kind.name] += len(found)
        return found

    async def heads(self, **limits):
        found = await super().heads(**limits)
        self.read["HEAD"] += len(found)
        return found


@pytest.fixture
async def counted():
    rows = Rows(MemoryStore())
    async with midturn.open(store=rows, drain=0) as opened:
        yield rows, opened


async def test_a_page_of_a_long_session_reads_its_50_turns_and_the_list_its_50_heads(counted):
    rows, store = counted
    case = store.session("case-1", front_desk.support)
    for number in range(130):
        await case.run(task=f"task {number}")
    for number in range(120):
        await store.session("case-1", front_desk.support).fork(f"fork-{number}", at=1)
    app = midturn.asgi(store, token="secret")
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost", headers=HERE
    ) as client:
        rows.read.clear()
        html = (await client.get("/s/case-1")).text
        assert rows.read["TURN"] == rows.read["CHECKPOINT"] == 50
        assert rows.read["BODY"] <= 250
        shown = [int(number) for number in re.findall(r'<section class="turn[^"]*" id="turn-(\d+)"', html)]
        assert shown == list(range(81, 131))
        earlier = (await client.get("/s/case-1" + re.search(r'href="(\?before=\d+)" rel="prev"', html)[1])).text
        assert 'id="turn-31"' in earlier
        assert 'id="turn-81"' not in earlier
        rows.read.clear()
        await client.get("/sessions.json")
        assert 50 <= rows.read["HEAD"] <= 100


async def test_every_page_has_a_strict_policy_and_no_code_of_its_own(store, make):
    await asked(store)
    await store.session("case-2", front_desk.support).run(task="hello")
    client = make([front_desk.support])
    nonces = set()
    for path in ("/", "/inbox", "/s/case-1", "/s/case-2/at/1", "/s/case-2/lineage", "/audit", "/migrations", "/none"):
        answer = await client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "unsafe" not in policy
        nonces.add(re.search(r"'nonce-([^']+)'", policy)[1])
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]* src=)|javascript:", answer.text), path
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', answer.text), path
    assert len(nonces) == 8


async def test_pictures_are_shown_only_if_they_are_pictures_and_small(store, make):
    svg = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>").decode()
    large = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * LARGEST).decode()
    for data in (svg, large, "https://evil.example/x.png", "%%%"):
        assert bubble_of({"type": "M", "source": "user", "content": [{"data": data}]}).pictures == ()
    tiny = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    message = MultiModalMessage(content=["look", Image.from_base64(tiny)], source="user")
    await store.session("case-1", front_desk.support).run(task=message)
    assert 'src="data:image/png;base64,' in (await make([front_desk.support]).get("/s/case-1")).text


async def test_errors_are_pages_for_browsers_and_problems_for_programs(make):
    client = make()
    page = await client.get("/s/none")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    for path, accept in (("/s/none", "*/*"), ("/s/none.json", "text/html"), ("/api/sessions/none", "text/html")):
        answer = await client.get(path, headers={"Accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    stranger = make(headers={"Accept": "text/html"})
    page = await stranger.get("/inbox")
    assert page.status_code == 401
    assert 'name="token" type="password"' in page.text


@pytest.mark.parametrize("session", ["a/b", "..", ".", "~", "%2F", "a.json", "a b?c#d", "é\u202e", "<b>"])
async def test_any_id_has_a_page_of_its_own(store, make, session):
    await store.session(session, front_desk.support).run(task="hello")
    client = make([front_desk.support])
    link = unescape(re.search(r'class="mono id" href="([^"]+)"', (await client.get("/")).text)[1])
    assert (await client.get(link)).status_code == 200
    assert (await client.get(f"{link}.json")).json()["session"] == session


async def test_pages_and_the_api_have_the_same_json(store, make):
    await asked(store)
    client = make([front_desk.support])
    turn = (await client.get("/s/case-1/turns/1.json")).json()
    assert turn == (await client.get("/api/sessions/case-1/turns/1")).json()
    [waiting] = (await client.get("/inbox.json")).json()["waiting"]
    assert waiting["questions"] == turn["questions"]


async def test_migrations_say_which_sessions_wait_for_one_and_which_cannot_be_migrated(store, make):
    await store.session("case-1", midturn.Blueprint("support", front_desk.clerk, version=1)).run(task="hello")
    client = make([front_desk.support])
    assert "1 session needs a migration that is missing" in (await client.get("/migrations")).text
    later = midturn.Blueprint("support", front_desk.clerk, version=2)
    later.migration(1, 2)(lambda state: state)
    html = (await make([later]).get("/migrations")).text
    assert "1 session waits for a migration" in html
    assert 'href="/s/case-1"' in html
