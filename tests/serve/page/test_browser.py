"""The page in a real Chromium. A console error, a violation of the policy or a request to elsewhere fails a test."""

import asyncio
import re
from pathlib import Path

import front_desk
import pytest
from browser import browsing
from playwright.async_api import expect

import midturn

# The machine may be busy with other tests. No test waits for so long that something does *not* happen.
expect.set_options(timeout=60_000)
AXE = Path(__file__).parents[3] / ".venv" / "node" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = (
    "/",
    "/?status=failed&label=team%3Dclaims",
    "/inbox",
    "/inbox?label=none%3Dhere",
    "/s/case-42",
    "/s/case-41",
    "/s/case-39",
    "/s/case-17",
    "/s/case-42/turns/2",
    "/s/case-41/at/2",
    "/s/case-41/diff?before=1&after=2",
    "/s/case-41-b/lineage",
    "/audit",
    "/audit?by=nobody",
    "/migrations",
    "/s/case-41/do/rewind",
    "/s/case-42/do/label",
    "/s/case-41/do/export",
    "/nothing-here",
)


@browsing
async def test_a_case_goes_on_after_its_call_was_approved_with_changed_arguments(tabs):
    await front_desk.ask(tabs.server.store, "pay-1")
    page = await tabs.open("/")
    await page.locator("#chips").get_by_role("link", name="waiting").click()
    await expect(page.locator("#chips [aria-current]")).to_contain_text("waiting")
    await page.get_by_role("link", name="pay-1", exact=True).click()
    ask = page.locator(".ask")
    await expect(ask).to_contain_text("support_agent wants to call pay")
    await ask.get_by_text("Approve with changes…").click()
    await ask.get_by_label("amount").fill("30.5")
    await ask.get_by_role("button", name="Approve with these arguments").click()
    await expect(page.get_by_role("status").filter(has_text="Recorded.")).to_contain_text("ann@desk")
    await expect(page.locator("#turn-2")).to_contain_text("Done: the money is on its way.")  # without a reload
    await expect(page.locator("#head .title .status")).to_have_text("idle")
    await expect(page.locator("#turn-2")).to_contain_text("paid 30.50 EUR to NL12 BANK 0123 4567 89")


@browsing
async def test_of_two_tabs_one_wins_and_the_other_sees_who_was_faster(tabs):
    await front_desk.ask(tabs.server.store, "two-1")
    one, other = await tabs.open("/inbox"), await tabs.open("/s/two-1")
    # This tab looks away: else the answer of the other one takes the buttons from it.
    await other.evaluate("document.querySelector('[hx-sse\\\\:connect]').remove()")
    await other.get_by_text("Deny…").click()
    await other.get_by_label("The reason").fill("too much")
    async with one.expect_navigation():
        await one.locator("#asked-two-1").get_by_role("button", name="Approve", exact=True).click()
    tabs.down = True  # the browser logs that the answer is a 409
    async with other.expect_navigation():
        await other.get_by_role("button", name="Deny").click()
    await expect(other.get_by_role("heading", level=1)).to_have_text("This was answered already")
    await expect(other.locator("main")).to_contain_text("ann@desk: approve")
    async with midturn.open(tabs.server.store) as store:
        [decision] = (await store.session("two-1").turn(2)).decisions
    assert (decision.answer, decision.by) == ("approve", "ann@desk")


@pytest.mark.kills
@browsing
async def test_tabs_come_back_when_the_server_was_killed_and_started_again(tabs):
    pages = [await tabs.open(path) for path in ("/", "/s/case-42", "/inbox")]
    for page in pages:
        await expect(page.locator("#live")).to_have_text("live")
    tabs.down = True
    tabs.server.kill()
    for page in pages:
        await expect(page.locator("#live")).to_have_text("reconnecting…")
    async with midturn.open(tabs.server.store) as store:
        await store.session("case-42").answer("deny: not today", by="bob@desk")  # meanwhile, elsewhere
    await asyncio.to_thread(tabs.server.start)
    for page in pages:
        await expect(page.locator("#live")).to_have_text("live")
    listed, case, inbox = pages
    await expect(listed.locator("#row-case-42 .status")).to_have_text("interrupted")
    await expect(case.locator("#head .title .status")).to_have_text("interrupted")
    await expect(case.locator("#head")).to_contain_text("midturn resume APP case-42")
    await expect(inbox.locator("#gone-case-42").filter(has_text="It was answered.")).to_be_visible()
    await case.get_by_role("link", name="Resume…").click()
    await case.get_by_role("button", name="Resume").click()
    await expect(case.locator("#turn-2")).to_contain_text("I am sorry: I may not refund this order.")


@pytest.mark.kills
@browsing
async def test_a_tab_that_is_logged_out_by_a_new_token_says_what_to_do_and_keeps_what_was_typed(tabs):
    page = await tabs.open("/s/case-17")
    await expect(page.locator("#live")).to_have_text("live")
    await page.get_by_label("Your answer").fill("half typed")
    tabs.down = True
    tabs.server.kill()
    await asyncio.to_thread(tabs.server.start, DESK_TOKEN="another")
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text("You are logged out. If the server was restarted, it has a new token")
    await page.locator(".ask").get_by_role("button", name="Send").click()
    await expect(page.locator("main")).to_contain_text("Nothing was recorded. After the login, send it again.")
    await page.get_by_label("The token").fill("another")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("case-17")
    async with midturn.open(tabs.server.store) as store:
        assert (await store.info("case-17")).status == "waiting"


@browsing
async def test_a_double_click_sends_a_form_once(tabs):
    await front_desk.ask(tabs.server.store, "twice-1")
    page, posts = await tabs.open("/s/twice-1"), []

    async def slowly(route):
        posts.append(route.request.url)
        await asyncio.sleep(2)
        await route.continue_()

    await page.route("**/answer", slowly)
    button = page.get_by_role("button", name="Approve", exact=True)
    await button.evaluate("button => { button.click(); setTimeout(() => button.click(), 300); }")
    await expect(page.get_by_role("status").filter(has_text="Recorded.")).to_be_visible()
    assert len(posts) == 1


@browsing
async def test_nothing_is_left_of_a_session_that_is_deleted_while_somebody_looks(tabs):
    await front_desk.ask(tabs.server.store, "gone-1")
    page = await tabs.open("/s/gone-1")
    await expect(page.locator("#live")).to_have_text("live")
    async with midturn.open(tabs.server.store) as store:
        await store.delete("gone-1", by="bob@desk", why="asked to")
    await expect(page.locator("#turns")).to_contain_text("bob@desk deleted this session")
    await expect(page.locator("main")).not_to_contain_text("Please refund")
    await expect(page.locator("main form")).to_have_count(0)
    async with midturn.open(tabs.server.store) as store:
        await store.forget("gone-1")
    tabs.down = True  # the browser logs that the stream is not there
    await expect(page.locator("#live")).to_have_text("it is gone")


@browsing
async def test_the_navigation_counts_what_waits_as_it_changes(tabs):
    await front_desk.ask(tabs.server.store, "count-1")
    pages = [await tabs.open(path) for path in ("/?status=failed", "/inbox?label=none%3Dhere")]
    for page in pages:
        await expect(page.locator("#live")).to_have_text("live")
        count = int(await page.locator("#waiting").inner_text())
    await front_desk.ask(tabs.server.store, "count-2")
    for page in pages:
        await expect(page.locator("#waiting")).to_have_text(str(count + 1))


@browsing
async def test_everything_can_be_read_and_answered_without_javascript(tabs):
    await front_desk.ask(tabs.server.store, "plain-1")
    await front_desk.ask(tabs.server.store, "plain-2", front_desk.claims)
    page = await tabs.open("/", java_script_enabled=False)
    await page.get_by_role("link", name="Inbox").click()
    claim = page.locator("#asked-plain-2")
    await claim.get_by_label("Your answer").fill("Green, please.")
    await claim.get_by_role("button", name="Send").click()
    await expect(page.get_by_role("status").filter(has_text="Recorded.")).to_be_visible()
    await page.goto(f"{tabs.server.url}/s/plain-1")
    await page.get_by_text("Deny…").click()
    await page.get_by_label("The reason").fill("not this one")
    await page.get_by_role("button", name="Deny").click()
    await expect(page.get_by_role("status").filter(has_text="Recorded.")).to_contain_text("deny: not this one")
    await page.goto(f"{tabs.server.url}/s/plain-1/do/fork?at=1")
    await page.get_by_label("The id of the new session").fill("case/43")
    await page.get_by_role("button", name="Fork").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("case/43")
    await page.get_by_label("Say something").fill("hello")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator("#turn-2")).to_contain_text("hello")


@browsing
async def test_a_keyboard_is_enough_to_answer(tabs):
    await front_desk.ask(tabs.server.store, "keys-1")
    page = await tabs.open("/s/keys-1")
    await page.locator("#live[data-state=on]").wait_for()
    where = "[...document.querySelectorAll(':focus')].map(e => e.innerText || e.value || e.name)[0] ?? ''"

    async def press_until(text):
        for _ in range(60):
            await page.keyboard.press("Tab")
            if text in await page.evaluate(where):
                outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline == "solid", f"the focus on {text!r} cannot be seen"
                return
        raise AssertionError(f"Tab does not reach {text!r}")

    await press_until("Approve with changes…")
    await page.keyboard.press("Enter")
    for _ in range(2):
        await page.keyboard.press("Tab")
    await page.keyboard.press("Control+A")
    await page.keyboard.type("12")
    await press_until("Approve with these arguments")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").filter(has_text="Recorded.")).to_contain_text("12")


@browsing
async def test_a_live_update_keeps_what_somebody_types_and_unfolds(tabs):
    await front_desk.ask(tabs.server.store, "typed-1")
    page = await tabs.open("/s/typed-1", viewport={"width": 1280, "height": 700})
    await expect(page.locator("#live")).to_have_text("live")
    await page.get_by_text("Approve with changes…").click()
    await page.get_by_label("iban").fill("half typed")
    await page.locator("#turn-1 details.did summary").click()
    before = await page.get_by_label("iban").bounding_box()
    async with midturn.open(tabs.server.store) as store:
        await store.label("typed-1", {"seen": "yes"})
    await expect(page.locator("#head")).to_contain_text("seen=yes")
    await expect(page.get_by_label("iban")).to_have_value("half typed")
    assert await page.locator("#turn-1 details.did").get_attribute("open") is not None
    assert await page.get_by_label("iban").bounding_box() == before


@browsing
async def test_a_turn_that_somebody_begins_comes_to_those_who_look(tabs):
    await front_desk.ask(tabs.server.store, "live-1", front_desk.claims)
    listed, case = await tabs.open("/"), await tabs.open("/s/live-1")
    await expect(listed.locator("#live")).to_have_text("live")
    watching = await tabs.open("/s/live-1")
    await expect(watching.locator("#live")).to_have_text("live")
    await case.get_by_label("Your answer").fill("Green.")
    await case.locator(".ask").get_by_role("button", name="Send").click()
    await expect(case.get_by_role("status").filter(has_text="Recorded.")).to_be_visible()
    await expect(watching.locator("#turn-1 .talk")).to_contain_text("Green.")
    await case.get_by_label("Say something").fill("And a red one.")
    await case.locator(".speak").get_by_role("button", name="Send").click()
    await expect(watching.locator("#turn-2")).to_contain_text("And a red one.")
    await expect(watching.locator(".turn")).to_have_count(2)
    await expect(listed.locator("#row-live-1 .num")).to_have_text("2")


HOSTILE = '<img src="https://evil.example/x.png" onerror="alert(1)"><script>alert(2)</script><b hx-get="/x">&amp;'


@browsing
async def test_what_agents_and_users_say_is_text(tabs):
    session = f"../{HOSTILE}%2e.json\u202e"
    async with midturn.open(tabs.server.store) as store:
        case = store.session(session, front_desk.support, labels={HOSTILE[:60]: HOSTILE})
        await case.run(task=f"{HOSTILE}\n<hx-partial id=main>x</hx-partial> data: \n\n event: x")
        await case.run(task=f"Please refund {HOSTILE}")
    page = await tabs.open("/")
    await expect(page.locator("#live")).to_have_text("live")
    link = page.get_by_role("link", name="../<img").first
    await link.click()
    await expect(page.locator("#turn-1")).to_contain_text(HOSTILE)
    await expect(page.get_by_role("heading", level=1)).to_contain_text("\\u202e")  # what turns text round is seen
    await expect(page.locator("#live")).to_have_text("live")
    assert await page.locator("main img, main script, main [hx-get]").count() == 0
    home = page.url
    for path in ("/at/1", "/diff?before=1&after=1", "/lineage", "/turns/1", "/do/label"):
        await page.goto(re.sub("[?#].*", "", home) + path)
        await expect(page.get_by_role("heading", level=1)).to_contain_text("<script>")
        assert await page.locator("main img, main script").count() == 0
    for path in ("/inbox", "/audit", "/migrations"):
        await page.goto(tabs.server.url + path)
        assert await page.locator("main img, main script").count() == 0


@browsing
async def test_a_stranger_is_asked_for_the_token_and_gets_where_they_wanted(tabs):
    tabs.down = True  # the browser logs that the answer is a 401
    page = await tabs.open("/s/case-41", login=False)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Who are you?")
    tabs.down = False
    await page.get_by_label("The token").fill("secret")
    await page.get_by_role("button", name="Go on").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("case-41")
    assert "secret" not in page.url


CONTRAST = {"type": "rule", "values": ["color-contrast"]}
"""All that a colour scheme can change."""


@browsing
async def test_axe_finds_nothing_on_any_page_and_nothing_is_too_wide(tabs):
    assert AXE.exists(), "make .venv/node/.installed installs it"
    page = await tabs.open("/", bypass_csp=True, viewport={"width": 360, "height": 800})
    found = {}
    for path in PAGES:
        tabs.down = path == "/nothing-here"
        await page.goto(tabs.server.url + path)
        await page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360, path
        await page.set_viewport_size({"width": 1280, "height": 800})
        await page.add_script_tag(path=AXE)
        for scheme, rules in (("light", None), ("dark", CONTRAST)):
            await page.emulate_media(color_scheme=scheme)
            background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", background))) > 382) == (scheme == "light")
            options = {"resultTypes": ["violations"]} | ({} if rules is None else {"runOnly": rules})
            axe = await page.evaluate("options => axe.run(document, options)", options)
            found |= {f"{path} {scheme} {each['id']}": each["nodes"][0]["html"] for each in axe["violations"]}
        await page.set_viewport_size({"width": 360, "height": 800})
    assert found == {}
