"""The handlers that the dispatchers of these tests run.

Each writes down when it starts and ends, in a file of its process (see ``records``), so that
limits are verified by what ran and not by what the queue says of it.
"""

import os
import signal
import time

from django_zizq import job
from tests.concurrency.records import gate, recorded


@job(name="test.work")
def work(n: int, ms: int = 0, cost: int = 1) -> None:
    """Take *ms* milliseconds."""
    with recorded(n, cost):
        time.sleep(ms / 1000)


@job(name="test.hold")
def hold(n: int, cost: int = 1) -> None:
    """Take until the test opens the gate of *n*, or all gates."""
    with recorded(n, cost):
        while not gate(n).exists() and not gate().exists():
            time.sleep(0.005)


@job(name="test.kill_worker")
def kill_worker(n: int) -> None:
    """Kill the process that runs this."""
    with recorded(n, 1):
        os.kill(os.getpid(), signal.SIGKILL)
