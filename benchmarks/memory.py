"""The memory of a dispatcher process in front of a million ready jobs.

python -m benchmarks.memory COUNT    # the child: dispatch COUNT jobs and stop
"""

from __future__ import annotations

import subprocess
import sys
import time

import django
import psutil

from benchmarks.figures import Mark, Measure, Unit
from benchmarks.progress import say

DRAINED = 50_000
MOST = Mark(150, of_figure=True)
_MEGABYTE = 1_000_000
_SAMPLE_SECONDS = 0.01


def run(*, rows: int, rounds: int) -> list[Measure]:
    """Measure the most that the process holds while it dispatches the first jobs.

    The bound is what the process holds before that: Python, Django and the models.
    """
    from benchmarks import scratch

    drained = min(DRAINED, rows)
    name = f"most while {drained:,} of {rows:,} are dispatched".replace(",", " ")
    measure = Measure("memory", name, Unit.MEMORY, bound_name="Django alone", mark=MOST)
    say("  filling")
    scratch.fill(rows)
    for number in range(rounds):
        say(f"  round {number + 1}")
        measure.add(*_watch(drained))
    return [measure]


def _watch(count: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.memory", str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        before = float(child.stdout.readline() or 0)
        process, most = psutil.Process(child.pid), 0
        while child.poll() is None:
            if process.status() != psutil.STATUS_ZOMBIE:
                most = max(most, process.memory_info().rss)
            time.sleep(_SAMPLE_SECONDS)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return most / _MEGABYTE, before / _MEGABYTE


def main(count: int) -> None:
    """Dispatch *count* jobs, having printed the memory held before that."""
    django.setup()
    from django_zizq.dispatcher import Dispatcher
    from django_zizq.journal import Journal
    from django_zizq.options import Options

    print(psutil.Process().memory_info().rss, flush=True)
    stopped = False

    def watch(journal: Journal) -> None:
        nonlocal stopped
        if journal.completed >= count and not stopped:
            stopped = True
            dispatcher.stop()

    dispatcher = Dispatcher(Options(using="default"), on_pass=watch)
    completed = dispatcher.run().completed
    assert completed >= count, f"only {completed} of {count} jobs were run"


if __name__ == "__main__":
    main(int(sys.argv[1]))
