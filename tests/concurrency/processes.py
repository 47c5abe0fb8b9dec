"""Dispatchers in processes of their own, and what the tests do to them."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.concurrency.forking import ROOT, Fork, Forker
from tests.concurrency.waiting import DEADLINE_S, wait_until


class DispatcherProcess:
    """One ``zizq_dispatch``; what it prints goes to the file *log*.

    It is forked by *forker*, or without one a Python of its own.
    """

    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        log: Path,
        forker: Forker | None = None,
    ) -> None:
        self.log = log
        self._process = _started(arguments, environment, log, forker)
        self.pid = self._process.pid

    @property
    def output(self) -> str:
        return self.log.read_text()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop it where it is until ``thaw``."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: _state(self.pid) == "T", "it is frozen")

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash of the machine would, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self._process.wait(DEADLINE_S)

    def ends(self, *, seconds: float = DEADLINE_S) -> int:
        """Wait until it has ended and return its exit code."""
        wait_until(lambda: not self.is_running, f"{self.pid} ends; {self}", seconds=seconds)
        code = self._process.returncode
        assert code is not None
        return code

    def says(self, text: str, *, times: int = 1) -> None:
        """Wait until it has printed *text* that often."""
        wait_until(lambda: self.output.count(text) >= times, f"it says {text!r}; {self}")

    def clean_up(self) -> None:
        """Kill it and whatever it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(DEADLINE_S)

    def __str__(self) -> str:
        return f"its output:\n{self.output}"


def _started(
    arguments: list[str], environment: Mapping[str, str], log: Path, forker: Forker | None
) -> subprocess.Popen[bytes] | Fork:
    log.touch()
    if forker is not None:
        return forker.start(arguments, environment, log)
    with log.open("wb") as output:
        # A group of its own, so that its children can be found if it leaves any.
        return subprocess.Popen(
            [sys.executable, "-m", "django", "zizq_dispatch", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def is_alive(pid: int) -> bool:
    """Say whether a process runs; one that ended but was not waited for does not."""
    return _state(pid) not in ("", "Z", "X")


def _state(pid: int) -> str:
    """Return the state of a process as the kernel abbreviates it; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
