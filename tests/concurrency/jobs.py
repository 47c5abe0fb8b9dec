"""The handlers that the dispatchers of these tests run.

Each writes down when it starts and ends, in a file of its process (see ``records``), so that
limits are verified by what ran and not by what the queue says of it.
"""

import os
import signal
import time
from datetime import timedelta

from django.utils import timezone

from django_zizq import Retry, enqueue, job
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


@job(name="test.clocks")
def clocks(n: int) -> list[float]:
    """Return what this process takes the time for, in seconds."""
    with recorded(n, 1):
        return [time.time(), timezone.now().timestamp()]


@job(name="test.enqueue_work")
def enqueue_work(n: int, queue: str, delay_ms: int) -> None:
    """Enqueue the job *n*, for later."""
    delay = timedelta(milliseconds=delay_ms)
    enqueue("test.work", queue=queue, delay=delay, payload={"n": n})


@job(name="test.fail_once")
def fail_once(n: int, delay_ms: int) -> None:
    """Fail, and succeed when tried again that much later."""
    with recorded(n, 1):
        if not gate(n).exists():
            gate(n).touch()
            raise Retry(delay=timedelta(milliseconds=delay_ms))
