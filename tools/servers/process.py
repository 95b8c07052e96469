"""A server as a child process: its folder, its port, and ways to stop or kill it."""

import atexit
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self

import psutil

HOST = "127.0.0.1"
PATIENCE = 60.0
"""Seconds to wait for something before it counts as failed."""

# Below the ports that the system gives to clients: a client could take the port of a server that is down.
# Redis Cluster also listens 10000 above: such a port is given neither to a server nor to a client.
PORTS = range(11_000, 21_000)
BUS = 10_000

# Ends the server of a folder if the process that made it dies without doing so. PostgreSQL sends SIGKILL to its stopped
# children five seconds after SIGQUIT.
WATCHDOG = """
read -r end
if pid=$(cat "$1/pid"); then
    kill -CONT "$pid"
    kill -QUIT "$pid"
    for second in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$pid" || break; sleep 1; done
    kill -KILL "$pid"
fi
rm -rf "$1"
"""

_given: set[int] = set()


class ServerMissing(RuntimeError):
    """A server's program is not installed; the message says what to install."""


class ServerFailed(RuntimeError):
    """A server did not do what it was asked to do; the message ends with its log."""


def plain_user() -> pwd.struct_passwd | None:
    """Return a user to run servers as, if this process is root, because some refuse to run as root; else ``None``."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerMissing("the servers cannot run as root: add a user named postgres or nobody, or run as another user")


def free_port() -> int:
    """Return a port that is free and that this process was not given before."""
    for port in iter(lambda: random.SystemRandom().choice(PORTS), None):
        if port not in _given and _is_free(port) and _is_free(port + BUS):
            _given.add(port)
            break
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def wait_until(true: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait until a condition is true. ``what`` describes it in the error."""
    until = time.monotonic() + patience
    while not true():
        if time.monotonic() > until:
            raise ServerFailed(f"{what}: not within {patience:.0f} seconds")
        time.sleep(0.01)


def run(command: Sequence[str | Path], folder: Path, user: pwd.struct_passwd | None, text: str = "") -> str:
    """Run a command with ``text`` as its input, and return its output."""
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        user=user and user.pw_uid,
        group=user and user.pw_gid,
        extra_groups=None if user is None else [],
    )
    if done.returncode:
        raise ServerFailed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Folder:
    """A temporary folder that belongs to ``user`` and is removed at the end, even if this process is killed."""

    def __init__(self, name: str, user: pwd.struct_passwd | None = None) -> None:
        base = Path(tempfile.gettempdir())
        if user is not None and not all(step.stat().st_mode & 0o001 for step in (base, *base.parents)):
            base = Path("/tmp")  # noqa: S108 - the one folder that every user can reach
        self.path = Path(tempfile.mkdtemp(prefix=f"midturn-{name}-", dir=base))
        if user is not None:
            os.chown(self.path, user.pw_uid, user.pw_gid)
        self._owner = os.getpid()
        self._watchdog = subprocess.Popen(
            ["sh", "-c", WATCHDOG, "sh", self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        atexit.register(self.remove)

    @property
    def is_mine(self) -> bool:
        """Return whether this process made the folder. A fork of it did not."""
        return os.getpid() == self._owner

    def remove(self) -> None:
        """Remove the folder, unless this process is a fork of its maker."""
        if self.is_mine and self._watchdog.stdin:
            self._watchdog.kill()
            self._watchdog.wait()
            self._watchdog.stdin.close()
            atexit.unregister(self.remove)
            shutil.rmtree(self.path, ignore_errors=True)


class Server:
    """A server with a port and a folder of its own. ``stop`` and ``crash`` keep its data, ``close`` removes it."""

    _goodbye: ClassVar = signal.SIGTERM
    """The signal that stops the server."""
    _farewell: ClassVar = signal.SIGKILL
    """The signal that ends the server when its data is no longer needed."""

    def __init__(self, name: str, user: pwd.struct_passwd | None = None) -> None:
        self.port = free_port()
        self._name = name
        self._user = user
        self._folder = Folder(name, user)
        self.folder = self._folder.path
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self._name} on port {self.port}, {'running' if self.running else 'down'}>"

    def _command(self) -> list[str | Path]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _answers(self) -> bool:
        """Return whether the server answers."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        """Return whether its process lives. A paused one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the id of the process that was started. The others are its children."""
        if self._process is None or not self.running:
            raise ServerFailed(f"{self!r} does not run")
        return self._process.pid

    @property
    def log(self) -> str:
        """Return the output of the server."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start the server with its port and data, and wait until it answers."""
        if self.running:
            return
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user and self._user.pw_uid,
                group=self._user and self._user.pw_gid,
                extra_groups=None if self._user is None else [],
                start_new_session=True,
            )
        (self.folder / "pid").write_text(str(self._process.pid))
        try:
            wait_until(lambda: not self.running or self._answers(), "it did not answer")
        except ServerFailed as error:
            raise ServerFailed(f"{self!r}: {error}\n{self.log[-2000:]}") from None
        if not self.running:
            raise ServerFailed(f"{self!r} ended at once:\n{self.log[-2000:]}")

    def stop(self) -> None:
        """Stop the server without waiting for its clients."""
        self._end(self._goodbye)

    def close(self) -> None:
        """End the server and remove its data."""
        if self._folder.is_mine:
            self._end(self._farewell)
            self._folder.remove()
            atexit.unregister(self.close)

    def crash(self) -> None:
        """Kill the server and all its children at once."""
        if self._process is not None and self.running:
            family = self._freeze()
            self._signal(reversed(family), signal.SIGKILL)  # no child is to notice that its parent is dead
            self._process.wait()
            wait_until(lambda: not any(_state(member) for member in family), f"{self!r} did not die")
        self._has_ended()

    def pause(self) -> None:
        """Pause the server and its children. Connections hang."""
        family = self._freeze()
        self._signal(family, signal.SIGSTOP)
        for member in family:
            wait_until(lambda member=member: _state(member) in {"", psutil.STATUS_STOPPED}, "it did not stop")  # type: ignore[misc]

    def resume(self) -> None:
        """Continue after ``pause``."""
        self._signal(reversed(self._family()), signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or not self.running or how is signal.SIGKILL:
            self.crash()
            return
        self.resume()
        self._process.send_signal(how)
        try:
            self._process.wait(PATIENCE / 2)
        except subprocess.TimeoutExpired:
            self.crash()
        self._has_ended()

    def _has_ended(self) -> None:
        """Remove files that would prevent the next start."""
        (self.folder / "pid").unlink(missing_ok=True)

    def _family(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    def _freeze(self) -> list[psutil.Process]:
        """Pause the parent, so that it starts no more children, and return it with its children."""
        parent = psutil.Process(self.pid)
        parent.suspend()
        wait_until(lambda: _state(parent) in {"", psutil.STATUS_STOPPED}, f"{self!r} did not stop")
        return self._family()

    @staticmethod
    def _signal(family: Iterator[psutil.Process] | list[psutil.Process], which: signal.Signals) -> None:
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.send_signal(which)


def _state(process: psutil.Process) -> str:
    """Return the state of a process; nothing if it is dead, even if its parent has not noticed."""
    try:
        state = str(process.status())
    except psutil.NoSuchProcess:
        return ""
    return "" if state in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD} else state
