"""docs/how-to/see-and-answer.md: its commands, and the page that they open."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "see-and-answer.md").read_text()


@pytest.fixture
def case(provider, tmp_path):
    (tmp_path / "app.py").write_text(re.search(r"```python\n(# app\.py\n.*?)```", PAGE, re.DOTALL)[1])
    words = re.search(r'^midturn (chat \S+ \S+) "(.*)"$', PAGE, re.MULTILINE)
    chat = [sys.executable, "-m", "midturn", *words[1].split(), words[2]]
    subprocess.run(chat, cwd=tmp_path, env=provider, check=True, capture_output=True)
    return tmp_path


@pytest.fixture
def address(case, provider):
    """The address that the second command of the page prints."""
    words = re.search(r"^midturn (web .*)$", PAGE, re.MULTILINE)[1].split()
    server = subprocess.Popen(
        [sys.executable, "-m", "midturn", *words, "--port", "0"],
        cwd=case,
        env=provider,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said = server.stdout.readline()
        shown = re.search(r"```text\n(serving on .*)\n```", PAGE)[1]
        assert re.sub(":[0-9]+/", ":8642/", said).startswith(shown.removesuffix("..."))
        yield said.split()[-1]
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def test_an_approval_on_the_page_continues_the_case(address):
    with httpx.Client(follow_redirects=True, timeout=60) as browser:
        html = browser.get(address).text
        action = re.search(r'<form method="post" action="([^"]+/answer)">', html)[1]
        fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', html)[:3])
        answer = browser.post(str(httpx.URL(address).join(action)), data=fields | {"answer": "approve"})
        assert "Recorded." in answer.text
        for path in re.findall(r"^\| `(/[^`]*)` \|", PAGE, re.MULTILINE):
            found = browser.get(str(httpx.URL(address).join(path)))
            assert found.status_code in (200, 404), path  # the case has one checkpoint yet
        while "The money is on its way." not in browser.get(address).text:
            pass
        for path in re.findall(r"`(/[^`]+\.json)`", PAGE):
            assert browser.get(str(httpx.URL(address).join(path))).status_code == 200, path
