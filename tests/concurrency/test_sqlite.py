"""Several dispatcher processes on one SQLite file."""

import random
import threading
from collections import Counter
from functools import partial

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from django_zizq import Binding, enqueue
from django_zizq.models import Worker
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.records import peak
from tests.concurrency.stored import in_use, limit, wait_for_statuses, wait_for_workers
from tests.concurrency.threads import background
from tests.concurrency.waiting import DEADLINE_S

JOBS = 2_000


@pytest.mark.sqlite
@pytest.mark.slow
def test_four_dispatchers_share_two_thousand_jobs_with_a_writer_beside_them(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    chance = random.Random(4)
    dispatchers = [start_dispatcher("--threads", "4") for _ in range(4)]
    wait_for_workers(4)
    limit("stripe", 3)
    bound, done = set(), threading.Event()
    with background() as start:
        written = start(partial(write_until, done))
        try:
            for n in range(JOBS):
                cost = chance.randint(0, 3)
                if cost:
                    bound.add(n)
                enqueue(
                    "test.work",
                    payload={"n": n, "ms": chance.randint(0, 4), "cost": cost},
                    budgets=[Binding("stripe", cost=cost)] if cost else [],
                )
            wait_for_statuses(completed=JOBS)
        finally:
            done.set()
        assert written.result(DEADLINE_S) > 100
    for dispatcher in dispatchers:
        dispatcher.terminate()
    assert [dispatcher.ends() for dispatcher in dispatchers] == [0] * 4

    runs = records.runs()
    assert Counter(run.n for run in runs) == Counter(range(JOBS))
    assert peak(run for run in runs if run.n in bound) <= 3
    assert len({run.pid for run in runs}) > 1, "the dispatchers did not share the work"
    for dispatcher in dispatchers:
        for fault in ("database is locked", "WARNING", "ERROR", "Traceback"):
            assert fault not in dispatcher.output
    assert in_use("stripe") == 0
    assert Worker.objects.count() == 0


def write_until(done: threading.Event) -> int:
    """Write as the site itself does, on a connection of its own; return how often."""
    times = 0
    while not done.wait(0.005):
        times += 1
        with transaction.atomic():
            group = Group.objects.create(name=f"group {times}")
            Group.objects.filter(pk=group.pk).update(name=f"former group {times}")
            Group.objects.exclude(pk=group.pk).delete()
    return times
