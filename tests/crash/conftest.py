"""Workers in processes of their own, to be killed, stopped and cut off; ``workers.py`` is their side of it."""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest
from tools.servers import shared

import midturn
from midturn.sessions.reader import SessionReader

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.with_name("autogen"))]

PATIENCE = 120
"""Seconds of silence after which a worker is taken to hang. It is never waited for so long when all is well."""


class Worker:
    """One worker as its test sees it."""

    def __init__(self, end):
        self._socket = end
        self._socket.settimeout(PATIENCE)
        self._lines = end.makefile("rb")
        self.heard = []
        self.silence = 0.0
        self.pid = self.wait_for("begin")["pid"]

    def hear(self):
        """Return the worker's next line; ``None`` once the worker has died or ended."""
        since = time.monotonic()
        try:
            line = self._lines.readline()
        except TimeoutError:
            raise AssertionError(f"worker {self.pid} hangs; it said {self.heard[-5:]}") from None
        except ConnectionResetError:  # it died without having heard all
            line = b""
        self.silence = max(self.silence, time.monotonic() - since)
        if not line.endswith(b"\n"):
            self.close()
            return None
        said = json.loads(line)
        assert said["is"] != "broken", said["text"]
        self.heard.append(said)
        return said

    def wait_for(self, what):
        """The next thing of this kind that it says."""
        while (said := self.hear()) is not None:
            if said["is"] == what:
                return said
            assert said["is"] != "error", f"it was to say {what!r} and said {said}"
        raise AssertionError(f"the worker ended before it said {what!r}; it said {self.heard[-5:]}")

    def rest(self):
        """Everything until it ends or dies."""
        while self.hear() is not None:
            pass
        return self.heard

    def all(self, what):
        """All that it said of this kind up to now."""
        return [said for said in self.heard if said["is"] == what]

    @property
    def ended(self):
        """Return whether the worker ended by itself."""
        return bool(self.heard) and self.heard[-1]["is"] == "end"

    def tell(self, step):
        self._socket.sendall(json.dumps(step).encode() + b"\n")

    def finish(self):
        """Say no more, and wait for its end."""
        self._socket.shutdown(socket.SHUT_WR)
        self.rest()
        assert self.ended, self.heard[-5:]

    def close(self):
        self._lines.close()
        self._socket.close()

    def kill(self):
        """Kill it, and hear what it had said before."""
        os.kill(self.pid, signal.SIGKILL)
        return self.rest()

    def wait_until_stopped(self):
        stat = Path(f"/proc/{self.pid}/stat")
        until = time.monotonic() + PATIENCE
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < until, f"worker {self.pid} does not stop"
            time.sleep(0.002)

    def wake(self):
        os.kill(self.pid, signal.SIGCONT)


class Workers:
    """Makes workers, each forked from a process that has everything imported."""

    def __init__(self):
        self._socket, other = socket.socketpair()
        self._made = []
        with other:
            script = Path(__file__).with_name("workers.py")
            self._process = subprocess.Popen([sys.executable, script, str(other.fileno())], pass_fds=[other.fileno()])

    def __call__(self, **request):
        mine, other = socket.socketpair()
        with other:
            socket.send_fds(self._socket, [b"+"], [other.fileno()])
        worker = Worker(mine)
        worker.tell(request)
        self._made.append(worker)
        return worker

    def forget(self):
        """Have done with the workers made up to now."""
        for worker in self._made:
            worker.close()
        self._made.clear()

    def close(self):
        self._socket.close()
        assert self._process.wait(PATIENCE) == 0


@pytest.fixture(scope="session")
def forks():
    made = Workers()
    yield made
    made.close()


@pytest.fixture
def workers(forks):
    """Makes workers: ``workers(url=..., session=..., steps=[...])``."""
    yield forks
    forks.forget()


@pytest.fixture(params=shared.DURABLE)
def kind(request):
    """A kind of store that outlives its processes."""
    return request.param


@pytest.fixture(params=["as usual", "turned"] if os.environ.get("MIDTURN_LONG") else ["as usual"])
def place(request, kind, tmp_path):
    """Makes new stores of that kind, one for each name: ``place("other")``.

    Redis compresses its records, and the others do not. With MIDTURN_LONG=1 it is also the other way round.
    """

    def make(name):
        url = shared.store_url(kind, tmp_path / name)
        if request.param == "as usual":
            return url
        return f"{url}{'&' if '?' in url else '?'}compress={'none' if kind == 'redis' else 'zstd'}"

    return make


@pytest.fixture
def url(place):
    """A new store of that kind."""
    return place("store")


@pytest.fixture
def rng():
    """Random choices that a failing test can be run with again: its seed stands in the captured output."""
    seed = int(os.environ.get("MIDTURN_SEED") or random.SystemRandom().randrange(10**6))
    print(f"MIDTURN_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def figures(capsys, record_property):
    """Print a line of figures past pytest's capturing, and leave it in the report."""

    def show(**values):
        line = " ".join(f"{name}={value}" for name, value in values.items())
        record_property("figures", line)
        with capsys.disabled():
            print(f"\n{line}")

    return show


@pytest.fixture
def read():
    """Return the turns and the state of a session, as a new reader finds them."""

    def reading(url, session):
        async def both():
            async with midturn.open(url) as store:
                case = store.session(session)
                turns = [turn async for turn in SessionReader(store.store, session).history()]
                done = [turn.number for turn in turns if turn.status == "done"]
                return turns, await case.at(done[-1]).state() if done else None

        return asyncio.run(both())

    return reading


def _check(reading, count):
    turns, state = reading
    assert [turn.number for turn in turns] == list(range(1, count + 1))
    assert {turn.status for turn in turns} == {"done"}
    assert len({turn.key for turn in turns}) == count
    texts = [[message["content"] for message in turn.messages] for turn in turns]
    for turn, (task, reply) in zip(turns, texts, strict=True):
        assert turn.task[0]["content"] == task
        assert reply.startswith(f"{task} -> {2 * turn.number}"), "it did not know what was said before"
    assert [message["content"] for message in state["llm_context"]["messages"]] == list(chain(*texts))
    return turns, texts


@pytest.fixture
def check():
    """The turns of a reading and their texts, which must be whole, in order, and all that the agent remembers."""
    return _check


@pytest.fixture
def check_history():
    """The same, and beside it the owner of each write, when all that the workers of a session told is true.

    They have told of their writes, and no other worker has written.
    """

    def checking(crew, reading, count):
        writes = sorted((said["seq"], said["epoch"], worker.pid) for worker in crew for said in worker.all("wrote"))
        # One may be missing whose answer was lost: that it was written is found out without asking for it again.
        assert len({seq for seq, _, _ in writes}) == len(writes), "two writes were applied to one head"
        epochs = [epoch for _, epoch, _ in writes]
        assert epochs == sorted(epochs)
        owners = {}
        for _, epoch, pid in writes:
            assert owners.setdefault(epoch, pid) == pid, "two owners in one epoch"
        turns, texts = _check(reading, count)
        for worker in crew:
            for said in worker.all("done"):
                assert texts[said["turn"] - 1] == said["texts"]
                assert turns[said["turn"] - 1].key == said["step"]["key"]
        return turns, texts, [(epoch, pid) for _, epoch, pid in writes]

    return checking
