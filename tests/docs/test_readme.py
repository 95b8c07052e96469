import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = ROOT / "src" / "midturn" / "__main__.py"
README = (ROOT / "README.md").read_text()
WITHOUT_KEY, WITH_KEY = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
REMEMBER, ASK = re.findall(r'^python support\.py "(.*?)"', README, re.MULTILINE)


def with_key():
    """The first example with the ``build`` of the second."""
    before, after = re.split(r"^def build\(\):.*\n +return .*\n", WITHOUT_KEY, flags=re.MULTILINE)
    return before + WITH_KEY + after


@pytest.fixture(params=["without a key", "with a key"])
def support(request, script, tmp_path):
    """Run the example in a process of its own. Without a key, the environment has neither key nor provider."""
    keyless = request.param == "without a key"
    path = tmp_path / "support.py"
    path.write_text(WITHOUT_KEY if keyless else with_key())
    env = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""} if keyless else {}
    return lambda task: script(path, task, **env)


def test_the_example_remembers_in_the_next_process(support):
    support(REMEMBER)
    assert support(ASK) == "The customer prefers email.\n"


def test_a_command_that_imports_the_example_runs_only_its_own_turn(script, tmp_path):
    (tmp_path / "support.py").write_text(WITHOUT_KEY)
    assert script(COMMAND, "chat", "support:build", "case-42", "hello") == "Noted: hello.\n"


def test_without_the_first_process_it_does_not_know(support):
    assert "I do not know" in support(ASK)


def test_every_local_link_leads_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def headings(page):
    """The anchors of a page, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_anchor_of_a_link_is_a_heading():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*\.md)?#([^)]+)\)", page.read_text()):
            assert anchor in headings(page.parent / target if target else page), (
                f"{page.name} links to {target}#{anchor}"
            )
