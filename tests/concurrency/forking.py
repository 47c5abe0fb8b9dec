"""Dispatchers as forks of one process that has imported everything, each with its environment.

    python -m tests.concurrency.forking

Importing takes a dispatcher two seconds of a processor, a fork 20 ms. Each line that this reads is
a JSON object: the log, the arguments of `zizq_dispatch` and the environment; its answer is the
process id. What the process ends with, as `subprocess` would say it, is written beside the log.
"""

import ctypes
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from tests.concurrency.waiting import DEADLINE_S, wait_until

ROOT = Path(__file__).resolve().parents[2]
_SETTINGS = "tests.concurrency.settings"
_PR_SET_PDEATHSIG = 1


class Fork:
    """A process that was forked, as far as tests treat it like one of `subprocess`."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self._exit = _exit_file(log)

    def poll(self) -> int | None:
        """Return what it ended with, if it has ended."""
        return int(self._exit.read_text()) if self._exit.exists() else None

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def wait(self, seconds: float) -> int:
        wait_until(lambda: self.poll() is not None, f"{self.pid} ends", seconds=seconds)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Forker:
    """The process that forks."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.concurrency.forking"],
            cwd=ROOT,
            env={**environment, "DJANGO_SETTINGS_MODULE": _SETTINGS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Fork:
        """Start a dispatcher."""
        assert self._process.stdin
        assert self._process.stdout
        order = json.dumps([str(log), list(arguments), dict(environment)])
        print(order, file=self._process.stdin, flush=True)
        return Fork(int(self._process.stdout.readline()), log)

    def close(self) -> None:
        """End it, and with it every fork that is left."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate(timeout=DEADLINE_S)


def _exit_file(log: Path) -> Path:
    return log.with_suffix(".exit")


def _serve() -> tuple[str, list[str], dict[str, str]]:
    """Fork for each line; return what it says in the process that is to do it."""
    import django
    from django.core.management import load_command_class
    from django.db import connection

    django.setup()
    load_command_class("django_zizq", "zizq_dispatch")
    importlib.import_module(f"{connection.settings_dict['ENGINE']}.base")
    _end_with_parent(int(os.environ["ZIZQ_TEST_PARENT"]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that no zombie is left
    gc.freeze()
    forker = os.getpid()
    for line in sys.stdin:
        log, arguments, environment = json.loads(line)
        if os.fork():
            continue
        _end_with_parent(forker)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        watcher = os.getpid()
        if pid := os.fork():
            _watch(pid, _exit_file(Path(log)))
        _end_with_parent(watcher)
        return log, arguments, environment
    sys.exit()


def _end_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _watch(pid: int, exit_file: Path) -> NoReturn:
    os.write(1, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    written = exit_file.with_suffix(".writing")
    written.write_text(str(os.waitstatus_to_exitcode(status)))
    written.rename(exit_file)
    os._exit(0)


def _become_dispatcher(log: str, arguments: list[str], environment: dict[str, str]) -> None:
    from django.conf import settings
    from django.core.management import execute_from_command_line
    from django.db import connections
    from django.utils.functional import empty

    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number, target in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(target, number)
    os.environ.clear()
    os.environ.update(environment)
    for name in ("tests.settings", _SETTINGS):
        importlib.reload(sys.modules[name])
    lazy: Any = settings
    lazy._wrapped = empty
    databases: Any = connections
    databases._settings = None
    del databases.settings
    for alias in databases:
        with suppress(AttributeError):
            del databases[alias]
    sys.argv = ["django-admin", "zizq_dispatch", *arguments]
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    _become_dispatcher(*_serve())
