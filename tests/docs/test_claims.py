"""The claims team: its page shows what happens, and it is killed at every step."""

import os
import re
from pathlib import Path

import pytest
from forked import run_script

ROOT = Path(__file__).parents[2]
CLAIMS = ROOT / "examples" / "claims"
PAGE = (ROOT / "docs" / "claims.md").read_text()
SHOWN = dict(re.findall(r"```console\n\$ python (.*?)\n(.*?)```", PAGE, re.DOTALL))
WAITS = 3


@pytest.fixture
def claims(tmp_path):
    """Run a script of the example in an empty directory, with a model that does not think; its exit code and words."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIDTURN_", "OPENAI_", "MODEL_"))}

    def run(command):
        name, *words = command.split()
        done = run_script(CLAIMS / name, *words, cwd=tmp_path, env={**kept, "MODEL_SECONDS": "0"}, timeout=240)
        return done.returncode, done.stdout + done.stderr

    return run


def rows(table):
    """Return the content of each row."""
    return {line[:36].strip(): line[36:].split() for line in table.splitlines()[1:] if re.search(r"\s[-\d]$", line)}


def test_the_code_on_the_page_is_that_of_the_example():
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert code in (CLAIMS / "claims.py").read_text()


def test_a_claim_waits_without_a_process_and_is_paid_once_when_it_is_approved(claims):
    assert claims("claims.py run") == (WAITS, SHOWN["claims.py run"])
    again, waits = claims("claims.py run")
    assert again == WAITS
    assert "It waits: May pay_out(" in waits
    assert claims("claims.py approve") == (0, SHOWN["claims.py approve"])
    done, told = claims("claims.py run")
    assert done == 0
    assert "The bank has made 1 payout(s)" in told
    refused, why = claims("claims.py approve")
    assert (refused, why) == (1, "session 'claim-1207' waits for no answer; it may have been answered\n")


@pytest.mark.parametrize(
    ("said", "result", "payouts"),
    [
        ("approve 900", "-> Payout 1: 900 EUR for claim-1207.", 1),
        ("deny the invoice is missing", "-> This call was not allowed: the invoice is missing", 0),
    ],
)
def test_a_human_may_pay_less_or_nothing(claims, said, result, payouts):
    claims("claims.py run")
    code, words = claims(f"claims.py {said}")
    assert code == 0
    assert f"now  payout  {result}\n" in words
    assert f"The bank has made {payouts} payout(s)" in words


def test_killed_at_every_step_it_pays_once_and_says_the_same(claims):
    code, table = claims("kill.py")
    assert code == 0, table
    found, shown = rows(table), rows(SHOWN["kill.py"])
    assert found == shown
    assert {cell for row in found.values() for cell in row} == {"1", "-"}
    kills = sum(row.count("1") for row in found.values())
    for text in (table, SHOWN["kill.py"]):
        assert f"\n{kills} runs, each killed once, in " in text
        assert f" processes: {kills} ended with\none reservation, one payout and the transcript of the run" in text
        assert text.endswith("model calls were made again: those whose answers had not been recorded.\n")


def test_the_control_pays_twice_and_is_found_out(claims):
    code, table = claims("kill.py --blind pay_out")
    assert code == 1, table
    begins, ends, _, once = rows(table)["pay_out"]
    assert (begins, ends, once) == ("1", "2", "1")
    assert rows(SHOWN["kill.py --blind pay_out"])["pay_out"][1] == "2"
