"""The database goes away and comes back: work goes on, and nothing runs twice."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connection

from django_zizq import enqueue
from django_zizq.dialect import Database
from django_zizq.dispatch import Pass, Request, run_pass
from django_zizq.dispatcher import Dispatcher
from django_zizq.models import Worker
from django_zizq.options import Options
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.jobs import work
from tests.concurrency.records import peak
from tests.concurrency.server import Server, migrated_server
from tests.concurrency.stored import (
    in_use,
    limit,
    statuses,
    wait_for_statuses,
    wait_for_workers,
)
from tests.concurrency.waiting import stays_false, wait_until

JOBS = 200
FILL = """
import django
django.setup()
from django_zizq import BudgetPolicy, WhileInFlight, enqueue
from django_zizq.models import Budget
Budget.objects.create_budget("stripe", BudgetPolicy(3, WhileInFlight()))
for n in range({jobs}):
    payload = {{"n": n, "ms": 20}}
    enqueue("test.work", payload=payload, budgets=["stripe"] if n % 2 else [])
"""


@pytest.fixture(scope="module")
def shared_server() -> Iterator[Server]:
    with migrated_server() as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    """A server apart from the suite's, up and with empty tables, that the test may stop."""
    yield shared_server
    if not shared_server.is_running:
        shared_server.start()
    shared_server.execute(
        "TRUNCATE django_zizq_job, django_zizq_binding, django_zizq_joberror, "
        "django_zizq_budget, django_zizq_worker"
    )


@pytest.mark.postgresql
@pytest.mark.slow
def test_work_goes_on_after_a_restart_of_the_server(
    server: Server, start_dispatcher_elsewhere: StartDispatcher, records: Records
) -> None:
    server.python("-c", FILL.format(jobs=JOBS))
    dispatchers = [
        start_dispatcher_elsewhere("--threads", "3", environ=server.environ) for _ in range(2)
    ]
    for enough in (20, 90):
        records.wait_for_ends(enough)
        said = [one.output.count("cannot be reached") for one in dispatchers]
        server.stop()
        for dispatcher, before in zip(dispatchers, said, strict=True):
            dispatcher.says("the database cannot be reached; trying again", times=before + 1)
        server.start()
    wait_until(
        lambda: (
            server.rows("SELECT count(*) FROM django_zizq_job WHERE status = 'completed'")
            == [(JOBS,)]
        ),
        "all jobs are completed",
    )
    for dispatcher in dispatchers:
        dispatcher.terminate()
    assert [dispatcher.ends() for dispatcher in dispatchers] == [0, 0]

    runs = records.runs()
    assert Counter(run.n for run in runs) == Counter(range(JOBS))
    assert peak(run for run in runs if run.n % 2) <= 3
    assert server.rows("SELECT in_use FROM django_zizq_budget") == [(0,)]
    assert server.rows("SELECT count(*) FROM django_zizq_worker") == [(0,)]
    assert server.rows("SELECT sum(losses), sum(attempts) FROM django_zizq_job") == [(0, 0)]
    for dispatcher in dispatchers:
        assert "the database is back" in dispatcher.output
        assert "Traceback" not in dispatcher.output


@pytest.mark.postgresql
def test_lost_connections_lose_and_double_nothing(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 3)
    for n in range(JOBS):
        payload = {"n": n, "ms": 20}
        enqueue("test.work", payload=payload, budgets=["stripe"] if n % 2 else [])
    dispatchers = [start_dispatcher("--threads", "3") for _ in range(2)]
    for enough in range(10, 130, 10):
        records.wait_for_ends(enough)
        _terminate_other_backends()
    wait_for_statuses(completed=JOBS)

    runs = records.runs()
    assert Counter(run.n for run in runs) == Counter(range(JOBS))
    assert peak(run for run in runs if run.n % 2) <= 3
    assert in_use("stripe") == 0
    for dispatcher in dispatchers:
        if not settings.IS_POOLED:
            assert "listening for wake-ups was interrupted" in dispatcher.output
        assert "Traceback" not in dispatcher.output
        dispatcher.terminate()
    assert [dispatcher.ends() for dispatcher in dispatchers] == [0, 0]


@pytest.mark.postgresql
@pytest.mark.direct("LISTEN")
def test_a_dispatcher_listens_again_after_its_connection_was_lost(
    start_dispatcher: StartDispatcher, records: Records
) -> None:
    dispatcher = start_dispatcher("--poll-interval", "3600")
    wait_for_workers(1)
    wait_until(_listeners, "it listens")
    _terminate_other_backends()
    dispatcher.says("listening for wake-ups was interrupted")
    wait_until(_listeners, "it listens again")
    enqueue("test.work", payload={"n": 1})
    records.wait_for_ends(1)
    wait_for_statuses(completed=1)


@pytest.mark.postgresql
def test_a_stop_during_an_outage_leaves_the_jobs_to_be_rescued(
    server: Server, start_dispatcher_elsewhere: StartDispatcher, records: Records
) -> None:
    server.python(
        "-c",
        "import django; django.setup(); from django_zizq import enqueue; "
        "enqueue('test.hold', payload={'n': 1})",
    )
    dispatcher = start_dispatcher_elsewhere("--grace", "0.5", environ=server.environ)
    records.wait_for_starts(1)
    server.stop()
    dispatcher.says("the database cannot be reached")
    dispatcher.terminate()
    assert dispatcher.ends() == 0
    assert "1 jobs stay with this worker until they are rescued" in dispatcher.output
    assert "Traceback" not in dispatcher.output


def test_a_dispatcher_waits_for_a_database_that_is_down_at_the_start(
    start_dispatcher_elsewhere: StartDispatcher, tmp_path: Path
) -> None:
    nowhere = str(tmp_path).replace("/", "%2F")
    dispatcher = start_dispatcher_elsewhere(
        environ={"ZIZQ_TEST_DATABASE_URL": f"postgresql://postgres@{nowhere}:5432/postgres"}
    )
    dispatcher.says("cannot be reached; trying again")
    stays_false(lambda: not dispatcher.is_running, "it gave up", seconds=1.5)
    assert len(dispatcher.output.strip().splitlines()) == 1, dispatcher.output
    assert "Traceback" not in dispatcher.output

    dispatcher.terminate()
    assert dispatcher.ends(seconds=20) == 0
    assert "Traceback" not in dispatcher.output


@pytest.mark.postgresql
def test_a_dispatcher_begins_when_the_database_comes_up(
    server: Server, start_dispatcher_elsewhere: StartDispatcher, records: Records
) -> None:
    server.python(
        "-c",
        "import django; django.setup(); from django_zizq import enqueue; "
        "enqueue('test.work', payload={'n': 1})",
    )
    server.stop()
    dispatcher = start_dispatcher_elsewhere(environ=server.environ)
    dispatcher.says("cannot be reached; trying again")
    server.start()
    dispatcher.says("the database is back")
    records.wait_for_ends(1)
    dispatcher.terminate()
    assert dispatcher.ends() == 0
    assert "Traceback" not in dispatcher.output
    assert server.rows("SELECT status FROM django_zizq_job") == [("completed",)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("stops", [True, False])
def test_a_claim_whose_answer_was_lost_is_handed_back(
    monkeypatch: pytest.MonkeyPatch, records: Records, stops: bool
) -> None:
    limit("stripe", 1)
    job = enqueue(work.name, payload={"n": 1}, budgets=["stripe"])
    dispatcher = Dispatcher(Options(using="default", threads=1, until_idle=True))

    def lose_the_answer(db: Database, request: Request, **options: Any) -> Pass:
        monkeypatch.setattr("django_zizq.dispatcher.run_pass", run_pass)
        assert len(run_pass(db, request, **options).claimed) == 1
        if stops:
            dispatcher.stop()
        raise OperationalError("the connection was lost")

    monkeypatch.setattr("django_zizq.dispatcher.run_pass", lose_the_answer)
    dispatcher.run()
    job.refresh_from_db()
    assert (job.claim, job.attempts, job.losses) == (1 if stops else 2, 0, 0)
    assert statuses() == {"ready" if stops else "completed": 1}
    assert records.started() == ([] if stops else [1])
    assert in_use("stripe") == 0
    assert Worker.objects.count() == 0


def _terminate_other_backends() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def _listeners() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        )
        count: int = cursor.fetchone()[0]
        return count
