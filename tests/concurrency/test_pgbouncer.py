"""What a run through PgBouncer is worth: connections are shared, and sessions lost."""

from collections import Counter
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import connection

from django_zizq import Binding, enqueue
from tests import pgbouncer
from tests.concurrency.conftest import Records, StartDispatcher
from tests.concurrency.records import peak
from tests.concurrency.stored import in_use, limit, wait_for_statuses, wait_for_workers
from tests.concurrency.waiting import wait_until

pytestmark = [pytest.mark.pgbouncer, pytest.mark.django_db(transaction=True)]

DISPATCHERS = 5
JOBS = 120


def ask(command: str) -> list[dict[str, object]]:
    return pgbouncer.ask(settings.DATABASE_URL, command)


def servers() -> int:
    """Return how many connections to the server the database of the tests has."""
    name = connection.settings_dict["NAME"]
    return sum(row["database"] == name for row in ask("SHOW SERVERS"))


def clients() -> int:
    name = connection.settings_dict["NAME"]
    return sum(row["database"] == name for row in ask("SHOW CLIENTS"))


def pool_of_at_most(size: int) -> None:
    ask(f"SET default_pool_size = {size}")
    pgbouncer.reconnect(settings.DATABASE_URL, connection.settings_dict["NAME"])


@pytest.fixture
def fewest_connections() -> Iterator[int]:
    """A pool of no more connections to the server than there are always."""
    fewest = pgbouncer.FEWEST_CONNECTIONS
    pool_of_at_most(fewest)
    yield fewest
    pool_of_at_most(pgbouncer.MOST_CONNECTIONS)


def values_of(sql: str, count: int) -> list[object]:
    with connection.cursor() as cursor:
        answers = []
        for _ in range(count):
            cursor.execute(sql)
            answers.append(cursor.fetchone()[0])
        return answers


def test_the_transactions_of_one_connection_take_turns_on_several_of_the_server() -> None:
    (mode,) = {
        row["pool_mode"]
        for row in ask("SHOW POOLS")
        if row["database"] == connection.settings_dict["NAME"]
    }
    assert mode == "transaction"
    wait_until(lambda: servers() >= pgbouncer.FEWEST_CONNECTIONS, "the pool is filled")
    pids = Counter(values_of("SELECT pg_backend_pid()", 12))
    assert len(pids) >= pgbouncer.FEWEST_CONNECTIONS


def test_what_a_session_is_told_is_forgotten_by_the_next_statements() -> None:
    wait_until(lambda: servers() >= pgbouncer.FEWEST_CONNECTIONS, "the pool is filled")
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '7s'")
    told = values_of("SHOW lock_timeout", pgbouncer.FEWEST_CONNECTIONS - 1)
    pool_of_at_most(pgbouncer.MOST_CONNECTIONS)  # the stranger's setting goes with its connection
    assert "7s" not in told


def test_dispatchers_keep_every_limit_on_fewer_connections_than_they_are(
    fewest_connections: int, start_dispatcher: StartDispatcher, records: Records
) -> None:
    limit("stripe", 3)
    for n in range(JOBS):
        enqueue(
            "test.work", payload={"n": n, "ms": 5}, budgets=[Binding("stripe")] if n % 2 else []
        )
    started = [
        start_dispatcher("--threads", "4", "--poll-interval", "0.2") for _ in range(DISPATCHERS)
    ]
    wait_for_workers(DISPATCHERS)
    assert servers() <= fewest_connections < DISPATCHERS < clients()
    wait_for_statuses(completed=JOBS)

    assert Counter(run.n for run in records.runs()) == Counter(range(JOBS))
    assert peak(run for run in records.runs() if run.n % 2) <= 3
    assert in_use("stripe") == 0
    for dispatcher in started:
        dispatcher.terminate()
    assert [dispatcher.ends() for dispatcher in started] == [0] * DISPATCHERS
    assert [one.output for one in started if "Traceback" in one.output] == []


def test_a_dispatcher_that_is_to_be_notified_says_what_stands_in_the_way(
    start_dispatcher: StartDispatcher,
) -> None:
    dispatcher = start_dispatcher("--poll-interval", "0.2", NOTIFY=True)
    assert dispatcher.ends() == 1
    assert 'Set ZIZQ = {"NOTIFY": False}, or let dispatchers connect' in dispatcher.output
    assert "Traceback" not in dispatcher.output
