"""The server restarts under load and connections break at random: work goes on within seconds."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from django.db import connection

from django_zizq import enqueue
from django_zizq.dialect import to_ms
from tests.concurrency.claims import assert_within_rate
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.records import peak
from tests.concurrency.server import Server, migrated_server
from tests.concurrency.stored import wait_for_statuses, wait_for_workers
from tests.concurrency.waiting import wait_until

JOBS, LIMIT = 700, 4
RATE, BURST = 60, 10
FILL = f"""
import random
import django
django.setup()
from datetime import timedelta
from django_zizq import BudgetPolicy, TimeBased, WhileInFlight
from django_zizq.models import Budget
from tests.concurrency.jobs import work
Budget.objects.create_budget("stripe", BudgetPolicy({LIMIT}, WhileInFlight()))
rate = TimeBased(timedelta(seconds=1), burst={BURST})
Budget.objects.create_budget("emails", BudgetPolicy({RATE}, rate))
keys = [["stripe", "emails"], ["stripe"], ["emails"]]
for first in range({JOBS}):
    work.using(budgets=keys[first % 3]).enqueue(n=first, ms=20)
"""
BACKENDS = """
    SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()
       AND backend_type = 'client backend'
"""
WRONG = """
    SELECT key, in_use FROM django_zizq_budget AS budget
     WHERE in_use <> (
        SELECT coalesce(sum(cost), 0)
          FROM django_zizq_binding AS binding JOIN django_zizq_job AS job ON job.id = job_id
         WHERE budget_id = budget.id AND job.status = 'in_flight')
        OR (key = 'stripe' AND in_use > allocation) OR in_use < 0 OR level < 0
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server apart from the suite's."""
    with migrated_server() as server:
        yield server


def break_connections(server: Server, chance: random.Random) -> None:
    """Let one to three connections of the dispatchers go, whatever they are for."""
    rows = server.rows(BACKENDS)
    pids = [pid for (pid,) in rows]
    for pid in chance.sample(pids, min(len(pids), chance.randint(1, 3))):
        server.rows(f"SELECT pg_terminate_backend({pid})")


def restarts(server: Server, number: signal.Signals) -> Callable[[], None]:
    def restart() -> None:
        server.stop(number)
        server.start()

    return restart


@pytest.mark.postgresql
@pytest.mark.slow
def test_work_goes_on_within_ten_seconds_of_whatever_happens_to_the_server(
    server: Server, start_dispatcher_elsewhere: StartDispatcher, records: Records
) -> None:
    server.python("-c", FILL)
    dispatchers = [
        start_dispatcher_elsewhere("--threads", "4", environ=server.environ) for _ in range(2)
    ]
    chance = random.Random(3)
    fast, immediate = restarts(server, signal.SIGINT), restarts(server, signal.SIGQUIT)
    breaks = partial(break_connections, server, chance)
    events: list[Callable[[], None]] = [breaks] * 8
    events += [fast, fast, immediate, immediate]
    chance.shuffle(events)
    for event in events:
        records.wait_for_ends(sum(run.ended is not None for run in records.runs()) + 30)
        event()
        begun, happened_at = len(records.runs()), time.monotonic()
        # As many as there are threads may have been claimed before.
        records.wait_for_starts(begun + 9)
        assert time.monotonic() - happened_at < 10
        assert server.rows(WRONG) == []
    finished = "SELECT count(*) FROM django_zizq_job WHERE status = 'completed'"
    assert server.rows(finished) < [(JOBS,)], "it was all done before the last of it happened"
    wait_until(lambda: server.rows(finished) == [(JOBS,)], "all jobs are completed")
    for dispatcher in dispatchers:
        dispatcher.terminate()
    assert [dispatcher.ends() for dispatcher in dispatchers] == [0, 0]

    runs = records.runs()
    assert Counter(run.n for run in runs) == Counter(range(JOBS))
    assert peak(run for run in runs if run.n % 3 < 2) <= LIMIT
    emails = "SELECT dequeued_at FROM django_zizq_job WHERE (payload->'n')::int % 3 <> 1"
    starts = [(to_ms(at), 1) for (at,) in server.rows(emails)]
    assert_within_rate(starts, allocation=RATE, duration_ms=1_000, capacity=BURST)
    assert server.rows("SELECT DISTINCT in_use FROM django_zizq_budget") == [(0,)]
    assert server.rows("SELECT count(*) FROM django_zizq_worker") == [(0,)]
    assert server.rows("SELECT sum(losses), sum(attempts) FROM django_zizq_job") == [(0, 0)]
    for dispatcher in dispatchers:
        assert "Traceback" not in dispatcher.output


@pytest.mark.postgresql
@pytest.mark.direct("a pooler passes no notifications on")
def test_notifications_wake_again_after_the_listening_connection_alone_was_lost(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    dispatcher = start_dispatcher("--poll-interval", "3600")
    wait_for_workers(1)
    for n in (1, 3):
        (pid,) = wait_until(listening, "it listens")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        dispatcher.says("listening for wake-ups was interrupted", times=n // 2 + 1)
        enqueue("test.work", payload={"n": n})  # while nobody listens
        records.wait_for_ends(n, seconds=20)
        wait_until(partial(is_listening, instead_of=pid), "it listens again")
        wait_for_statuses(completed=n)
        enqueue("test.work", payload={"n": n + 1})
        records.wait_for_ends(n + 1, seconds=20)
        wait_for_statuses(completed=n + 1)
    assert records.started() == [1, 2, 3, 4]
    assert "cannot be reached" not in dispatcher.output
    assert "Traceback" not in dispatcher.output


def is_listening(*, instead_of: int) -> bool:
    return listening() not in ([], [instead_of])


def listening() -> list[int]:
    """Return the server's processes that listen, by their ids."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        return [pid for (pid,) in cursor.fetchall()]
