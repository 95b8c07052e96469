"""The examples on docs/how-to/test-your-agents.md run, its tests pass, and what it prints is what the page says."""

import ast
import inspect
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-your-agents.md"
BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
TESTS = 5


async def test_the_page_runs_from_top_to_bottom(capsys, tmp_path):
    names = {}
    for kind, block in BLOCK.findall(PAGE.read_text()):
        if kind == "text":
            assert capsys.readouterr().out == block
            continue
        found = eval(compile(block, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if inspect.isawaitable(found):
            await found
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert len(tests) == TESTS
    for test in tests:
        await (test(tmp_path) if inspect.signature(test).parameters else test())
