"""What ran when, as the handlers themselves saw it, on the one clock of the machine.

A folder holds one append-only file for each process, with a line for each start and each end,
and an empty file for each gate that is open. A run without an end was cut short.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

FOLDER_VARIABLE = "ZIZQ_TEST_RECORDS"

_runs = count()


@dataclass(slots=True)
class Run:
    """One call of a handler; instants are nanoseconds since the epoch."""

    n: int
    cost: int
    pid: int
    started: int
    ended: int | None = None


def gate(n: int | None = None) -> Path:
    """Return the file whose existence lets job *n* go on; without a number, every job."""
    return _folder() / ("open" if n is None else f"open-{n}")


@contextmanager
def recorded(n: int, cost: int) -> Iterator[None]:
    """Write down when the block starts and when it ends."""
    run = f"{threading.get_ident()}-{next(_runs)}"
    _write(f"start {run} {n} {cost} {_now()}\n")
    try:
        yield
    finally:
        _write(f"end {run} {_now()}\n")


def read_runs(folder: Path) -> list[Run]:
    """Return every run so far, in the order of their starts."""
    runs: list[Run] = []
    for file in folder.glob("*.runs"):
        pid, of_file = int(file.stem), {}
        for line in file.read_text().splitlines():
            match line.split():
                case ["start", id, n, cost, at]:
                    of_file[id] = Run(int(n), int(cost), pid, int(at))
                case ["end", id, at]:
                    of_file[id].ended = int(at)
        runs += of_file.values()
    return sorted(runs, key=lambda run: run.started)


def peak(runs: Iterable[Run]) -> int:
    """Return the most that the runs, which have all ended, cost together at any instant."""
    changes = []
    for run in runs:
        assert run.ended is not None, f"{run} has not ended"
        changes += [(run.started, run.cost), (run.ended, -run.cost)]
    highest = now = 0
    for _, change in sorted(changes):  # an end comes before a start of the same instant
        now += change
        highest = max(highest, now)
    return highest


def _now() -> int:
    # Not `time.time_ns`, which is off on purpose in some processes (see `skewed`).
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def _folder() -> Path:
    return Path(os.environ[FOLDER_VARIABLE])


def _write(line: str) -> None:
    file = os.open(_folder() / f"{os.getpid()}.runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
