"""``midturn web``: the page of a store that exists."""

import re
import signal
import subprocess
import sys

import httpx


def test_it_makes_no_store_and_finds_no_session_that_is_not_there(cli, place):
    path = place / "none.db"
    done = cli("web", "--store", f"sqlite:///{path}", code=3)
    assert "there is no store" in done.err
    assert not path.exists()
    cli("chat", "app:desk", "case-1", "hello")
    done = cli("web", "--session", "case-2", code=3)
    assert "there is no session 'case-2'" in done.err


def test_it_prints_the_address_of_a_sessions_page_which_shows_it_without_its_agents(cli, place):
    cli("chat", "app:desk", "case/1", "hello")
    words = ["web", "--session", "case/1", "--port", "0", "--store", f"sqlite:///{place / 'midturn.db'}"]
    with subprocess.Popen([sys.executable, "-m", "midturn", *words], stdout=subprocess.PIPE, text=True) as server:
        address = server.stdout.readline().split()[-1]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/s/case%2F1\?token=\S+", address)
        with httpx.Client(follow_redirects=True, timeout=60) as browser:
            page = browser.get(address)
            assert (page.status_code, "token" in str(page.url)) == (200, False)
            assert "hello" in page.text
        server.send_signal(signal.SIGTERM)
    assert server.returncode == 143  # as every command that SIGTERM stops
