"""A person at a terminal."""

CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"


def test_a_conversation_goes_on_until_it_is_left(terminal, cli):
    chat = terminal("chat", "app:support", "case-42", new=True)
    chat.wait_for("session case-42, 0 turns so far; /exit or Ctrl-D ends, /help lists the commands\n> ")
    chat.type("one\n")
    chat.wait_for("helper: 1 said, the last: one\n")
    chat.wait_for("saved as checkpoint 1; continue: midturn chat app:support case-42\n> ")
    chat.type("   \n")
    chat.wait_for("> ")
    chat.type(UP + UP + "\n")
    chat.wait_for("helper: 2 said, the last: one\n")
    chat.wait_for("> ")
    chat.type("/exit\n")
    chat.wait_for("continue: midturn chat app:support case-42")
    assert chat.end() == 0
    assert len(cli("show", "case-42", "--json").json["history"]) == 2


def test_the_end_of_input_ends_it(terminal):
    chat = terminal("chat", "app:support", "case-42")
    chat.wait_for("> ")
    chat.type(CTRL_D)
    chat.wait_for("\ncontinue: midturn chat app:support case-42")
    assert chat.end() == 0


def test_commands_are_not_sent_to_the_agent_unless_it_is_asked_for(terminal, cli):
    chat = terminal("chat", "app:support", "case-42")
    chat.wait_for("> ")
    chat.type("/help\n")
    chat.wait_for("/history     show what was said so far\n/exit /quit")
    chat.wait_for("> ")
    chat.type("/histori\n")
    chat.wait_for("/histori is not a command; /help lists them. Send the line to the agent? [y/N] ")
    chat.type("\n")
    chat.wait_for("> ")
    chat.type("/think about it\n")
    chat.wait_for("[y/N] ")
    chat.type("y\n")
    chat.wait_for("helper: 1 said, the last: /think about it\n")
    chat.wait_for("> ")
    chat.type("/etc/hosts is a path\n")
    chat.wait_for("helper: 2 said, the last: /etc/hosts is a path\n")
    chat.wait_for("> ")
    chat.type("/history\n")
    chat.wait_for("2 said, the last: /etc/hosts")
    chat.wait_for("> ")
    chat.type("/quit\n")
    chat.wait_for("continue: midturn chat app:support case-42")
    assert chat.end() == 0
    assert len(cli("show", "case-42", "--json").json["history"]) == 2


def test_lines_break_between_words(terminal):
    text = "a word after a word and " + "x" * 50 + " and the end"
    for app in ("support", "build_streaming"):
        chat = terminal("chat", f"app:{app}", app, text, columns=40)
        assert chat.end() == 0
        shown = chat.plain.replace("\r", "").partition("saved as")[0]
        lines = shown.splitlines()
        assert lines[0].rstrip() == "helper: 1 said, the last: a word after a"
        assert lines[1].rstrip() == "word and"
        assert lines[2].rstrip() == "x" * 50, "the terminal breaks it"
        assert lines[-1].strip().endswith("and the end")


def test_text_is_shown_while_the_model_writes_it_and_only_once(terminal):
    chat = terminal("chat", "app:build_streaming", "case-42")
    chat.wait_for("> ")
    chat.type("hello\n")
    chat.wait_for("helper: 1 said, the last: hello")
    chat.wait_for("saved as")
    assert "helper" not in chat.plain
    chat.type("hostile\n")
    chat.wait_for(r"helper: \x1b]0;owned\x07\x1b[31mred\u202e")


def test_an_interrupted_turn_comes_back_to_the_prompt(terminal, until_begun, cli):
    chat = terminal("chat", "app:support", "case-42")
    chat.wait_for("> ")
    chat.type("wait\n")
    until_begun()
    chat.type(CTRL_C)
    chat.wait_for("turn 1 was cancelled; the session is as it was before it\n")
    chat.wait_for("try it again: midturn resume app:support case-42\n> ")
    chat.type("hello\n")
    chat.wait_for("helper: 1 said, the last: hello\n")
    chat.wait_for("> ")
    chat.wait_for_sleep()
    chat.type(CTRL_C)
    chat.wait_for("\ncontinue: midturn chat app:support case-42")
    assert chat.end() == 130
    assert [turn["status"] for turn in cli("show", "case-42", "--json").json["history"]] == ["cancelled", "done"]


def test_a_failed_turn_comes_back_to_the_prompt(terminal):
    chat = terminal("chat", "app:support", "case-42", "--traceback")
    chat.wait_for("> ")
    chat.type("fail\n")
    chat.wait_for("Traceback (most recent call last)")
    chat.wait_for("error: turn 1 of session 'case-42' failed: ValueError: the model is [bold]out[/bold] of order\n")
    chat.wait_for("try it again: midturn resume app:support case-42\n> ")


def test_a_turn_that_crashed_is_finished_before_the_first_prompt(terminal, crash, place):
    crash("case-42")
    (place / "go").touch()
    chat = terminal("chat", "app:support", "case-42")
    chat.wait_for("turn 1 was interrupted; finishing it first\nuser: wait and see\nhelper: 1 said")
    chat.wait_for("> ")


def test_a_question_of_the_agent_that_is_interrupted_ends_the_chat(terminal):
    chat = terminal("chat", "app:build_with_person", "case-42")
    chat.wait_for("> ")
    chat.type("hello\n")
    chat.wait_for("Enter your response: ")
    chat.type("mine\n")
    chat.wait_for("person: mine\n")
    chat.wait_for("> ")
    chat.type("again\n")
    chat.wait_for("Enter your response: ")
    chat.type(CTRL_C)
    chat.wait_for("turn 2 was cancelled")
    assert chat.end() == 130
    assert chat.edits_lines, "the shell gets a terminal back that does not work"


def test_colours_are_left_out_when_nobody_wants_them(terminal, monkeypatch):
    chat = terminal("chat", "app:support", "case-42", "hello")
    assert chat.end() == 0
    assert "\x1b[1;36mhelper:\x1b[0m" in chat.screen
    monkeypatch.setenv("NO_COLOR", "1")
    chat = terminal("chat", "app:support", "case-42", "hello")
    assert chat.end() == 0
    assert "36m" not in chat.screen


def test_json_at_a_terminal_is_for_one_turn(terminal):
    chat = terminal("chat", "app:support", "case-42", "--json")
    chat.wait_for("--json needs a TASK")
    assert chat.end() == 2


def test_rm_asks_first(terminal, cli):
    cli("chat", "app:support", "case-42", "hello")
    rm = terminal("rm", "case-42")
    rm.wait_for("Delete case-42 for good? [y/N]: ")
    rm.type("n\n")
    rm.wait_for("nothing was deleted")
    assert rm.end() == 1
    rm = terminal("rm", "case-42")
    rm.wait_for("[y/N]: ")
    rm.type("y\n")
    rm.wait_for("deleted case-42")
    assert rm.end() == 0


def test_tables_fit_a_narrow_terminal(terminal, cli):
    name = "case-" + "4" * 100
    cli("chat", "app:support", name, "hello " * 50, "--label", "team=claims")
    lines = {}
    for words in (["ls"], ["show", name]):
        table = terminal(*words, columns=60)
        assert table.end() == 0
        lines[words[0]] = table.plain.splitlines()
        assert max(map(len, lines[words[0]])) <= 60
    assert name in "".join(lines["ls"])  # it is there to be copied
    assert "…" in "".join(lines["show"])


def test_many_sessions_are_resumed_with_a_bar(terminal, crash, place):
    crash("a")
    crash("b")
    (place / "go").touch()
    resume = terminal("resume", "app:support", "--all")
    assert resume.end() == 0
    assert "resuming" in resume.plain
    assert "\na: turn 1 is complete\n" in resume.plain.replace("\r", "\n")
    assert resume.plain.rstrip().endswith("2 finished")


def test_a_question_of_a_turn_is_asked_at_the_prompt(terminal, cli):
    chat = terminal("chat", "app:desk", "case-42")
    chat.wait_for("> ")
    chat.type("hello\n")
    chat.wait_for("helper: 1 said, the last: hello\n")
    chat.wait_for("turn 1 of case-42 waits for an answer\n")
    chat.wait_for("\nanswer> ")
    assert "midturn answer" not in chat.plain
    chat.type("\n")
    chat.wait_for("answer> ")
    chat.type("fine\n")
    chat.wait_for("fine\n")
    chat.wait_for("\n> ")
    chat.type("/exit\n")
    assert chat.end() == 0
    [turn] = cli("show", "case-42", "--json").json["history"]
    assert turn["messages"][-1]["content"] == "fine"


def test_what_was_shown_of_a_turn_is_not_shown_again_after_the_answer(terminal):
    chat = terminal("chat", "app:desk", "case-42", "hello")
    chat.wait_for("answer> ")
    chat.type("fine\n")
    assert chat.end() == 0
    assert chat.plain.count("helper:") == 0
    assert chat.plain.count("person: fine") == 1
    assert "saved as checkpoint 1" in chat.plain


def test_what_is_said_twice_in_one_turn_is_shown_twice(terminal):
    chat = terminal("chat", "app:long_desk", "case-42", "hello")
    for _ in range(2):
        chat.wait_for("answer> ")
        chat.type("fine\n")
        chat.wait_for("person: fine\n")
    assert chat.end() == 0


def test_an_approval_is_asked_until_it_is_one(terminal, place):
    chat = terminal("chat", "app:cashier", "case-42", "both")
    chat.wait_for(": approve, deny or deny: REASON> ")
    chat.type("maybe\n")
    chat.wait_for("error: answer: is 'maybe'; it can be 'approve'")
    chat.wait_for("REASON> ")
    chat.type("approve\n")
    chat.wait_for("turn 1 of case-42 waits for an answer\n")
    chat.wait_for("\napprove, deny or deny: REASON> ")
    chat.type("deny: not twice\n")
    chat.wait_for("This call was not allowed: not twice")
    assert chat.end() == 0
    assert (place / "done").read_text() == "refund A1\n"


def test_a_question_that_is_left_open_is_asked_again_later(terminal, cli):
    ways = "answer: midturn answer case-42 TEXT --app app:desk\ngive the turn up: midturn discard case-42\n"
    chat = terminal("chat", "app:desk", "case-42", "hello")
    chat.wait_for("answer> ")
    chat.type(CTRL_D)
    chat.wait_for(f"continue: midturn chat app:desk case-42\n{ways}")
    assert chat.end() == 0
    chat = terminal("chat", "app:desk", "case-42")
    chat.wait_for("turn 1 of case-42 waits for an answer\n")
    chat.wait_for("answer> ")
    chat.wait_for_sleep()
    chat.type(CTRL_C)
    chat.wait_for(f"continue: midturn chat app:desk case-42\n{ways}")
    assert chat.end() == 130
    assert [turn["status"] for turn in cli("show", "case-42", "--json").json["history"]] == ["waiting"]
    chat = terminal("chat", "app:desk", "case-42", "more")
    chat.wait_for("answer> ")
    chat.type("fine\n")
    chat.wait_for("person: fine\n")
    chat.wait_for("helper: 3 said, the last: more")
    chat.wait_for("answer> ")
    chat.type("/exit\n")
    assert chat.end() == 0


def test_an_answer_is_given_at_a_terminal(terminal, cli):
    cli("chat", "app:desk", "case-42", "hello")
    answer = terminal("answer", "case-42")
    answer.wait_for("waits for an answer\n")
    assert answer.end() == 0
    answer = terminal("answer", "case-42", "fine", "--app", "app:desk")
    answer.wait_for("person: fine\n")
    assert answer.end() == 0


def test_discard_asks_first(terminal, cli):
    cli("chat", "app:desk", "case-42", "hello")
    discard = terminal("discard", "case-42")
    discard.wait_for("Give up turn 1 of case-42, which waits for an answer? [y/N]: ")
    discard.type("n\n")
    discard.wait_for("gave nothing up")
    assert discard.end() == 1
    discard = terminal("discard", "case-42")
    discard.wait_for("[y/N]: ")
    discard.type("y\n")
    discard.wait_for("gave up turn 1 of case-42")
    assert discard.end() == 0
