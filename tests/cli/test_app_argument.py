"""APP: names that it can have, and the errors for those that it cannot."""

import sys

import pytest

from midturn.cli.app_argument import load_app
from midturn.cli.errors import AppInvalid


def test_the_current_directory_is_searched_first(place):
    (place / "json.py").write_text("raise RuntimeError")  # imported already, so it does no harm
    (place / "package").mkdir()
    (place / "package" / "__init__.py").write_text("class things: agents = dict")
    assert load_app("package:things.agents") is dict
    assert sys.path[0] == str(place)


@pytest.mark.parametrize(
    ("app", "said"),
    [
        ("app", "module:attribute, such as app:support"),
        (":support", "module:attribute"),
        ("app:", "module:attribute"),
        ("app.py:support", "not a file: app:support"),
        ("ap:support", "no module 'ap'"),
        ("ap:support", "did you mean app?"),
        ("app.sub:support", "no module 'app.sub'"),
        ("app:suport", "app has no 'suport'; did you mean support?"),
        ("app:support.nothing", "app has no 'support.nothing'"),
        ("app:number", "app:number is a int; it must be a Blueprint"),
        ("app:result", "app:result is a TaskResult; it must be a Blueprint"),
        ("app:build_with_arguments", "must be callable without arguments"),
        ("app:AssistantAgent", "must be callable without arguments"),
        ("broken:x", "importing broken failed: ModuleNotFoundError: No module named 'absent'"),
        ("wrong:x", "importing wrong failed: SyntaxError"),
        ("leaving:x", "importing leaving failed: SystemExit: 7"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_said_in_a_line(place, app, said):
    (place / "broken.py").write_text("import absent")
    (place / "wrong.py").write_text("x = (")
    (place / "leaving.py").write_text("raise SystemExit(7)")
    with pytest.raises(AppInvalid) as caught:
        load_app(app)
    assert said in caught.value.message


def test_a_bad_app_is_wrong_usage_and_makes_no_store(cli, place):
    assert "did you mean support?" in cli("chat", "app:suport", "case-42", "hello", code=2).err
    assert cli("resume", "app:suport", "case-42", "--json", code=2).error["type"] == "AppInvalid"
    assert not (place / "midturn.db").exists()


def test_traceback_shows_where_an_import_failed(cli, place):
    (place / "broken.py").write_text("import absent")
    assert "--traceback shows where" in cli("chat", "broken:x", "case-42", "hello", code=2).err
    assert 'broken.py", line 1' in cli("chat", "broken:x", "case-42", "hello", "--traceback", code=2).err


def test_a_factory_that_raises_is_a_bad_app(cli):
    result = cli("chat", "app:build_broken", "case-42", "hello", code=2)
    assert result.err.startswith("error: app:build_broken failed: RuntimeError: no key is set\n")


def test_a_bug_of_ours_is_not_blamed_on_the_app(cli, monkeypatch):
    monkeypatch.setattr("midturn.cli.conversation.Live.show", lambda: None)
    with pytest.raises(TypeError):
        cli("chat", "app:support", "case-42", "hello")


def test_a_factory_of_something_else_is_an_error(cli):
    assert "returned a dict, not an agent or a team" in cli("chat", "builtins:dict", "case-42", "hello", code=2).err
