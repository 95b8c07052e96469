import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def example():
    found = re.search(r"```python\n(# support\.py\n.*?)```", README, re.DOTALL)
    return found.group(1)


def test_the_example_remembers_in_the_next_process(script, tmp_path):
    path = tmp_path / "support.py"
    path.write_text(example())
    script(path, "Remember that the customer prefers email.")
    assert "email" in script(path, "Which channel does the customer prefer?")


def test_without_the_first_process_it_does_not_know(script, tmp_path):
    path = tmp_path / "support.py"
    path.write_text(example())
    assert "I do not know" in script(path, "Which channel does the customer prefer?")


def test_every_local_link_leads_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
