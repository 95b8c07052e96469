"""The command line in a process that is forked from one which has AutoGen imported: that is what takes a second."""

import fcntl
import multiprocessing
import os
import sys
import termios
from multiprocessing.connection import Connection

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__, "midturn.cli.chat", "midturn.autogen.adapter", "autogen_agentchat.teams"])


class Forked:
    """A command that reads from this file and writes to it; if that is a terminal, it is the one to send it Ctrl-C."""

    def __init__(self, words, env, file):
        with Connection(os.dup(file)) as carried:  # which is how a file comes into another process
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


def _main(words, env, carried):
    from midturn.cli import main

    os.environ.clear()
    os.environ.update(env)
    os.setsid()
    if os.isatty(carried.fileno()):
        fcntl.ioctl(carried.fileno(), termios.TIOCSCTTY, 0)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        os.dup2(carried.fileno(), number)
        setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - it is open until the end
    carried.close()
    main(words, prog_name="midturn")
