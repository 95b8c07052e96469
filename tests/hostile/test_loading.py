"""F20: what a checkpoint says is data. Reading it runs nothing, imports nothing and starts nothing."""

import asyncio
import base64
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import midturn


class Bomb:
    def __reduce__(self):
        return os.system, ("touch /tmp/midturn-was-here",)


PICKLED = pickle.dumps(Bomb()).decode("latin-1")
COMPONENT = {
    "provider": "autogen_core.tools.FunctionTool",
    "component_type": "tool",
    "version": 1,
    "config": {
        "source_code": "def f():\n    import os\n    os.system('touch /tmp/midturn-was-here')\n",
        "name": "f",
        "description": "",
        "global_imports": ["os", {"module": "subprocess", "imports": ["run"]}],
        "has_cancellation_support": False,
    },
}
HOSTILE = {
    "__reduce__": ["os.system", ["true"]],
    "__class__": "subprocess.Popen",
    "py/object": "subprocess.Popen",
    "py/reduce": [{"py/function": "os.system"}, ["true"]],
    "lc": 1,
    "type": "constructor",
    "id": ["os", "system"],
    "pickle": PICKLED,
    "base64": base64.b64encode(PICKLED.encode("latin-1")).decode(),
    "yaml": "!!python/object/apply:os.system ['true']",
    "component": COMPONENT,
    "$": {"$": 0, "$log": 0},
    "template": "{{ ''.__class__.__mro__ }} {0.__class__} %(x)s ${jndi:ldap://x} `true` $(true)",
    "messages": [COMPONENT, {"type": "os.system"}, {"type": "UserMessage", "content": PICKLED, "source": "x"}],
}
UNFIT = {"type": "AssistantAgentState", "llm_context": {"messages": [{"type": "Nonsense"}]}}


def assistant_state(messages):
    return {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": messages}}


async def write(url, states):
    async with midturn.open(url) as store:
        for name, state in states.items():
            await store.session(name).save({"state": state}, origin="import")


@pytest.mark.parametrize("kind", ["keeper", "assistant"])
def test_a_hostile_checkpoint_is_plain_data(kept_url, kind):
    hostile = HOSTILE
    harmless = {"a": 1}
    if kind == "assistant":
        user = {"type": "UserMessage", "source": "user", "content": "hi"}
        harmless = assistant_state([user])
        hostile = assistant_state([user, user | {"content": PICKLED}, COMPONENT, HOSTILE]) | {"component": COMPONENT}
    asyncio.run(write(kept_url, {"harmless": harmless, "harmless but unfit": UNFIT, "hostile": hostile}))
    script = Path(__file__).with_name("audited.py")
    done = subprocess.run(
        [sys.executable, script, kept_url, kind], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["events"] == []
    assert said["control"], "nobody listened"
    outcome, turns, state = said["found"]
    assert outcome == (1 if kind == "keeper" else "StateInvalid")
    assert turns == 1
    assert state == hostile
    assert not Path("/tmp/midturn-was-here").exists()
