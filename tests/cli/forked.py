"""Commands and scripts in a process that is forked from one which has AutoGen imported: that is what takes a second."""

import fcntl
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import termios
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
AUTOGEN = ("midturn.autogen.adapter", "autogen_agentchat.teams", "autogen_ext.models.openai")
STORES = ("midturn.stores.sqlite.store", "midturn.stores.files.store", "midturn.maintenance.pruning")
FORKS.set_forkserver_preload([__name__, "midturn.cli.chat", *AUTOGEN, *STORES])


class Forked:
    """A command with these files as its stdin, stdout and stderr; if stdin is a terminal, it can send it Ctrl-C."""

    def __init__(self, words, env, files):
        with ExitStack() as stack:  # a connection is how a file comes into another process
            carried = [stack.enter_context(Connection(os.dup(file))) for file in files]
            self._process = FORKS.Process(target=_main, args=(words, env, carried))
            self._process.start()

    @property
    def pid(self):
        return self._process.pid

    def wait(self, timeout=None):
        """The exit code, when it has ended."""
        self._process.join(timeout)
        assert self._process.exitcode is not None, "it does not end"
        return self._process.exitcode

    def kill(self):
        self._process.kill()


def start_script(path, *words, cwd, env, stdout, stderr):
    """Start a Python file as a process, with these files as its output."""
    with Connection(os.dup(stdout)) as out, Connection(os.dup(stderr)) as err:
        args = (str(path), list(map(str, words)), str(cwd), dict(env), (out, err))
        process = FORKS.Process(target=_script, args=args)
        process.start()
    return process


def run_script(path, *words, cwd, env, timeout=120):
    """Run a Python file to its end, as ``subprocess.run`` does."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start_script(path, *words, cwd=cwd, env=env, stdout=out.fileno(), stderr=err.fileno())
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise AssertionError(f"{path} does not end")
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess([path, *words], process.exitcode, *texts)


def _script(path, words, place, env, outputs):
    os.environ.clear()
    os.environ.update(env)
    os.chdir(place)
    for number, name, carried in zip((1, 2), ("stdout", "stderr"), outputs, strict=True):
        os.dup2(carried.fileno(), number)
        setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115 - it is open until the end
        carried.close()
    sys.argv = [path, *words]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


def _main(words, env, files):
    from midturn.cli import main

    os.environ.clear()
    os.environ.update(env)
    os.setsid()
    if os.isatty(files[0].fileno()):
        fcntl.ioctl(files[0].fileno(), termios.TIOCSCTTY, 0)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        os.dup2(files[number].fileno(), number)
        setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - it is open until the end
        files[number].close()
    main(words, prog_name="midturn")
