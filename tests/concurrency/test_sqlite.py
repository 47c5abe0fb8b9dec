"""Several dispatcher processes on one SQLite file."""

import random
from collections import Counter

import pytest

from django_zizq import Binding, enqueue
from django_zizq.models import Worker
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.records import peak
from tests.concurrency.stored import in_use, limit, wait_for_statuses, wait_for_workers

JOBS = 2_000


@pytest.mark.sqlite
@pytest.mark.slow
def test_four_dispatchers_share_two_thousand_jobs(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    chance = random.Random(4)
    dispatchers = [start_dispatcher("--threads", "4") for _ in range(4)]
    wait_for_workers(4)
    limit("stripe", 3)
    bound = set()
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
    for dispatcher in dispatchers:
        dispatcher.terminate()
    assert [dispatcher.ends() for dispatcher in dispatchers] == [0] * 4

    runs = records.runs()
    assert Counter(run.n for run in runs) == Counter(range(JOBS))
    assert peak(run for run in runs if run.n in bound) <= 3
    assert len({run.pid for run in runs}) > 1, "the dispatchers did not share the work"
    for dispatcher in dispatchers:
        assert "database is locked" not in dispatcher.output
        assert "Traceback" not in dispatcher.output
    assert in_use("stripe") == 0
    assert Worker.objects.count() == 0
