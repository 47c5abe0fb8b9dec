"""The child process that dispatches: `benchmarks.children` starts and stops it.

Its result has the runs of ``recorded`` jobs, and the memory it held as jobs were settled. With
*traces* it leaves its traffic with the server in that folder.
"""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass, field

import django
import psutil

from benchmarks import children, traffic

_SAMPLE_SECONDS = 0.1


@dataclass(slots=True)
class _Memory:
    """Pairs of how many jobs were settled and the bytes held, some a second."""

    samples: list[tuple[int, int]] = field(default_factory=list)
    _process: psutil.Process = field(default_factory=psutil.Process)
    _sampled_at: float = 0.0

    def sample(self, settled: int) -> None:
        now = time.monotonic()
        if now - self._sampled_at >= _SAMPLE_SECONDS:
            self._sampled_at = now
            self.samples.append((settled, self._process.memory_info().rss))


def main() -> None:
    """Dispatch until told to stop, or idle if that is among the arguments."""
    stated = children.arguments()
    django.setup()
    from benchmarks import scratch
    from benchmarks.jobs import RUNS
    from django_zizq.options import Options
    from django_zizq.supervisor import run_here

    scratch.without_logs()
    if folder := stated.pop("traces", None):
        traffic.trace_into(folder)
    memory = _Memory()
    children.wait_for_the_word(lambda: signal.raise_signal(signal.SIGTERM))
    memory.sample(0)
    journal = run_here(Options(using="default", **stated), progress=memory.sample)
    print(json.dumps({"settled": journal.settled, "runs": RUNS, "memory": memory.samples}))


if __name__ == "__main__":
    main()
