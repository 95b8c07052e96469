"""The check of words finds what it is there for, and leaves good sentences alone."""

import pytest
from tools import check_words

GOOD = "Return the turn that is open."


def found(source):
    return [*check_words.problems_of_code("a.py", source)]


@pytest.mark.parametrize(
    "words",
    [
        "What the open turn is.",
        "Whether a turn is open.",
        "The open turn.",
        "Also the open turn.",
        "Say whether a turn is open.",
        "See that a turn is open.",
        "Questions of the open turn.",
        "AutoGen's own state.",
        "Returns the open turn.",
        "JSON of the open turn.",
        "return the open turn.",
        "``turn`` of the session.",
    ],
)
def test_a_docstring_of_a_function_that_begins_without_a_verb_is_found(words):
    [problem] = found(f'class A:\n    """Turn."""\n\n    async def f(self):\n        """{words}"""\n')
    assert problem.startswith(f"a.py:5: {words!r}: begin with a verb")


def test_a_docstring_in_the_tests_may_be_a_sentence_and_no_question():
    source = 'def f():\n    """{0} turn."""\n'
    assert [*check_words.problems_of_code("tests/a.py", source.format("The"))] == []
    assert len([*check_words.problems_of_code("tests/a.py", source.format("What"))]) == 1


@pytest.mark.parametrize("words", [GOOD, "Pass it on.", "Discuss it.", "Process it."])
def test_a_docstring_of_a_function_that_begins_with_a_verb_is_good(words):
    assert found(f'def f():\n    """{words}"""\n') == []


def test_a_module_a_class_or_an_attribute_begins_with_a_noun():
    source = '''"""{0} turn"""

class A:
    """{0} turn"""

    x: int = 1
    """{0} turn"""

    def __init__(self):
        self.y = 1
        """{0} turn"""


Y = 2
"""{0} turn"""
'''
    assert found(source.format("The")) == []
    assert {problem.split(":")[1] for problem in found(source.format("What"))} == {"1", "4", "7", "11", "15"}


@pytest.mark.parametrize(
    "words",
    [
        "is gone on with",
        "goes\non with it",
        "the turn goes on",
        "go on when",
        "where it left off",
        "and is said.",
        "the answer is none",
        "one of which is stopped",
        "the end thereof",
        "you are told that",
        "it is told when",
        "as can be had",
        "is kept in mind",
        "on the strength of it",
        "does not fit what was built",
        "what comes of it",
        "can be used anew",
        "that is all that is left of it",
    ],
)
def test_our_idiom_is_found_in_prose_and_in_strings(words):
    [problem] = check_words.idiom("a.md", f"First.\n{words}\n")
    assert problem.startswith("a.md:2: ")
    assert len(found(f'raise ValueError("""{words}""")')) == 1


@pytest.mark.parametrize("words", ["if there is none", "x is None", "going on holiday", "The agent was told."])
def test_plain_english_is_left_alone(words):
    assert [*check_words.idiom("a.md", words)] == []


def test_the_whole_tree_is_looked_at(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check_words, "ROOT", tmp_path)
    for room in check_words.ROOMS:
        (tmp_path / room / "inner").mkdir(parents=True)
        (tmp_path / room / "inner" / "a.py").write_text(f'def f():\n    """{GOOD}"""\n')
    pages = [tmp_path / "README.md", tmp_path / "docs" / "how-to" / "b.md", tmp_path / "examples" / "c" / "README.md"]
    for page in pages:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("word " * 599)
    assert check_words.main() == 0
    assert capsys.readouterr().out == "0 problems\n"

    for room in check_words.ROOMS:
        (tmp_path / room / "inner" / "a.py").write_text('def f():\n    """What the turn is."""\n')
    for page in pages:
        page.write_text("It goes on with it. " * 120)
    assert check_words.main() == 1
    *problems, summary = capsys.readouterr().out.splitlines()
    assert len(problems) == 5 + 3 * 120 + 1
    assert "README.md:1: 600 words; it needs fewer than 600: move something to docs/" in problems
    rooms = "README.md 121, benchmarks 1, docs 120, examples 121, src 1, tests 1, tools 1"
    assert summary == f"{len(problems)} problems, {rooms}"
