"""AutoGen's own tests pass through sessions, but for the differences that the docs name."""

import pytest
from tools.compat import __main__ as compat

KNOWN = {compat.EVERY: {"always"}, "rebuilt": {"listed"}}
PLAIN = {"always", "listed", "other"}


@pytest.mark.timeout(900)
def test_autogens_own_tests_pass_through_sessions_but_for_the_listed_ones(capfd):
    assert compat.check(["0.7.5"], ["as is"]) == 0, capfd.readouterr().out


@pytest.mark.parametrize(
    ("passed", "wrong"),
    [
        ({"other"}, []),
        (set(), ["rebuilt other: fails, and is not listed"]),
        ({"other", "listed"}, ["rebuilt listed: is listed, and does not need to be"]),
        ({"other", "always"}, ["every mode always: is listed, and passes in the mode rebuilt"]),
    ],
)
def test_the_list_of_differences_has_what_differs_and_nothing_else(passed, wrong):
    assert compat.compare("rebuilt", PLAIN, passed, KNOWN) == wrong


@pytest.mark.parametrize(
    "line", ["as is test_x — because", "as is test_x — because (docs/nowhere.md)", "never test_x — a (docs/turn.md)"]
)
def test_a_difference_needs_a_mode_and_a_page_that_documents_it(tmp_path, monkeypatch, line):
    monkeypatch.setattr(compat, "KNOWN", tmp_path / "differences.txt")
    compat.KNOWN.write_text(f"{line}\n")
    with pytest.raises(compat.CannotRun, match="reason"):
        compat.known_differences()


def test_without_a_package_index_the_tool_says_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(compat, "BUILD", tmp_path)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(compat.CannotRun, match=r"pip cannot fetch .* 0.7.5, whose tests run here"):
        compat.fetch("0.7.5")
