"""The command line in this process (``cli``), in a new one (``start``), and at a terminal (``terminal``)."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from midturn.cli import main

sys.path.insert(0, str(Path(__file__).parent))

from forked import Forked

PATIENCE = 60
"""Seconds that nothing takes when all is well."""

_MAIN = "from midturn.cli import main; main(prog_name='midturn')"
MIDTURN = [sys.executable, "-m", "midturn"]
# Its stdin becomes the terminal that sends it Ctrl-C.
AT_TERMINAL = [sys.executable, "-c", f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {_MAIN}"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A directory with the sample app as ``app``, which is the current one; the default store is in it, too."""
    shutil.copy(Path(__file__).with_name("sample_app.py"), tmp_path / "app.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "app", raising=False)
    for name in ("MIDTURN_URL", "COLUMNS", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


class Result:
    """The output of a command, and its exit code."""

    def __init__(self, code, out, err):
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def error(self):
        return json.loads(self.err)["error"]


@pytest.fixture
def cli():
    def call(*words, code=0, stdin=None):
        result = CliRunner().invoke(main, list(words), input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in result.stderr or "--traceback" in words
        return Result(result.exit_code, result.stdout, result.stderr)

    return call


class Process:
    """A command in a process of its own: a forked one, unless the test is about how a ``new`` one begins or ends."""

    def __init__(self, words, *, new=False, env=os.environ):
        stdin, typed = os.pipe()
        said, stdout = os.pipe()
        self._stdin, self._stdout = os.fdopen(typed, "wb", 0), os.fdopen(said, "rb", 0)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - as above, it is closed by stop()
        files = (stdin, stdout, self._stderr.fileno())
        if new:
            names = zip(("stdin", "stdout", "stderr"), files, strict=True)
            self._process = subprocess.Popen([*MIDTURN, *words], env=env, start_new_session=True, **dict(names))
        else:
            self._process = Forked(words, dict(env), files)
        os.close(stdin)
        os.close(stdout)

    def type(self, text):
        self._stdin.write(text.encode())

    def wait_for(self, text):
        """Until it has said this on stdout."""
        said = ""
        while text not in said:
            piece = self._stdout.read(4096).decode()
            assert piece, said
            said += piece

    def stop_reading(self):
        self._stdout.close()

    def send(self, number):
        os.kill(self._process.pid, number)

    def wait(self):
        """Until it ends by itself, though its stdin stays open."""
        self._process.wait(PATIENCE)

    def end(self):
        self._stdin.close()
        out = b"" if self._stdout.closed else self._stdout.readall()
        code = self._process.wait(PATIENCE)
        self._stderr.seek(0)
        return Result(code, out.decode(), self._stderr.read().decode())

    def stop(self):
        self._process.kill()
        self._process.wait(PATIENCE)
        for file in (self._stdin, self._stdout, self._stderr):
            file.close()


@pytest.fixture
def start():
    started = []

    def call(*words, **options):
        process = Process(words, **options)
        started.append(process)
        return process

    yield call
    for process in started:
        process.stop()


@pytest.fixture
def until_begun(place):
    """Waits until a turn that was told to ``wait`` does so; ``go`` lets it end."""

    def wait():
        until = time.monotonic() + PATIENCE
        while not (place / "begun").exists():
            assert time.monotonic() < until, "no turn was begun"
            time.sleep(0.01)
        (place / "begun").unlink()

    return wait


@pytest.fixture
def crash(until_begun):
    """Leaves a session behind whose turn was killed in the middle."""

    def kill(session, *options, app="app:support", task="wait and see"):
        with Path(os.devnull).open("r+") as nothing:
            process = Forked(["chat", app, session, task, *options], dict(os.environ), [nothing.fileno()] * 3)
        try:
            until_begun()
        finally:
            process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL

    return kill


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, words, columns=120, *, new=False):
        self.screen = ""
        self._file, other = pty.openpty()
        env = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns), "INPUTRC": os.devnull}
        if new:
            self._process = subprocess.Popen(
                [*AT_TERMINAL, *words], stdin=other, stdout=other, stderr=other, start_new_session=True, env=env
            )
        else:
            self._process = Forked(words, env, [other] * 3)
        os.close(other)

    def type(self, text):
        os.write(self._file, text.encode())

    def read(self):
        """More of what is on the screen; false at the end."""
        ready, _, _ = select.select([self._file], [], [], PATIENCE)
        assert ready, f"nothing happens any more after {self.plain!r}"
        try:
            data = os.read(self._file, 65536)
        except OSError:  # the other side is closed
            return False
        self.screen += data.decode(errors="replace")
        return bool(data)

    def wait_for(self, text):
        """Until the screen has shown this; what comes after it is looked at next."""
        while text not in self.plain:
            assert self.read(), f"the end came before {text!r}: {self.plain!r}"
        self.screen = self.plain.split(text, 1)[1]

    def wait_for_sleep(self):
        """Until it waits for a key: a signal between its prompt and that is seen only at the next key."""
        asleep, until = 0, time.monotonic() + PATIENCE
        while asleep < 10:
            assert time.monotonic() < until, f"it does not wait for a key after {self.plain!r}"
            state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            asleep = asleep + 1 if state == "S" else 0
            time.sleep(0.01)

    @property
    def plain(self):
        """The screen without colours and cursor movements."""
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.screen).replace("\r\n", "\n")

    @property
    def edits_lines(self):
        """Return whether the terminal is as a shell leaves it."""
        return bool(termios.tcgetattr(self._file)[3] & termios.ICANON)

    def end(self):
        """The exit code, when the command is done."""
        while self.read():
            pass
        return self._process.wait(PATIENCE)

    def stop(self):
        self._process.kill()
        self._process.wait()
        os.close(self._file)


@pytest.fixture
def terminal():
    opened = []

    def call(*words, **options):
        opened.append(Terminal(words, **options))
        return opened[-1]

    yield call
    for one in opened:
        one.stop()
