import os
import subprocess
import sys
from pathlib import Path

from forked import run_script

TUTORIAL = Path(__file__).parents[2] / "examples" / "tutorial"


def test_step_1_tells_the_agent_a_fact(script):
    assert "The customer prefers email." in script(TUTORIAL / "step1_tell.py")


def test_steps_2_and_3_save_in_one_process_and_restore_in_another(script):
    assert "checkpoint 1" in script(TUTORIAL / "step2_save.py")
    without, restored = script(TUTORIAL / "step3_restore.py").splitlines()
    assert without == "without the state: I do not know."
    assert restored == "with the state: The customer prefers email."


def test_step_3_alone_says_what_is_missing(provider, tmp_path):
    done = run_script(TUTORIAL / "step3_restore.py", cwd=tmp_path, env=provider)
    assert done.returncode == 1
    assert "run step2_save.py first" in done.stderr


def test_step_4_saves_after_each_turn(script):
    output = script(TUTORIAL / "step4_each_turn.py")
    assert "turn 3: The customer prefers email and SMS." in output
    assert output.count(": done") == 3


def test_step_5_survives_a_kill_after_the_acknowledgement(script):
    output = script(TUTORIAL / "step5_killed.py").splitlines()
    assert "acknowledged: Noted" in output[0]
    assert output[1].endswith("killed, exit code -9")
    assert output[2] == "a new process: acknowledged: The customer prefers email."


def test_step_5_runs_unchanged_on_the_local_model(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MIDTURN_", "OPENAI_"))}
    done = subprocess.run(
        [sys.executable, TUTORIAL / "step5_killed.py"],
        cwd=tmp_path,
        env={**environment, "MIDTURN_DEMO_MODEL_KIND": "local"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "email" in done.stdout.splitlines()[-1]
