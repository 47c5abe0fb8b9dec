"""On SQLite, where one alone may write, what only reads never asks to: it begins no transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_zizq import Binding
from django_zizq.dialect import to_ms
from django_zizq.models import Budget, Job
from django_zizq.standings import standings
from tests.core.limits import cc, pm
from tests.spec.harness import Site

pytestmark = pytest.mark.sqlite

READS: dict[str, Callable[[Site], Any]] = {
    "explain a parked job": lambda site: Job.objects.get(queue="parked").explain(),
    "explain a scheduled job": lambda site: Job.objects.scheduled()[0].explain(),
    "explain a running job": lambda site: Job.objects.in_flight()[0].explain(),
    "explain a budget": lambda site: Budget.objects.get(key="stripe").explain(),
    "parked": lambda site: list(Job.objects.parked()),
    "parked on a budget": lambda site: list(Job.objects.parked("stripe")),
    "count the parked": lambda site: Job.objects.parked("stripe").count(),
    "standings": lambda site: standings(site.db, now=to_ms(site.db.clock())),
    "unfinished": lambda site: Budget.objects.get(key="stripe").unfinished(),
}

every_read = pytest.mark.parametrize("read", READS.values(), ids=READS)

FRAMES = ("BEGIN", "SAVEPOINT", "RELEASE", "ROLLBACK", "COMMIT")


@pytest.fixture(params=["few", "many"])
def however_many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to count: binding by binding, and by lane."""
    if request.param == "many":
        monkeypatch.setattr("django_zizq.counting.FEW", 0)


def fill(site: Site) -> None:
    site.create("stripe", cc(2))
    site.create("rate", pm(1))
    site.spend("stripe", 2)
    site.enqueue("stripe", "rate", queue="parked")
    site.enqueue("stripe")
    site.enqueue(Binding("stripe", 2), delay=timedelta(days=1))


def frames(statements: CaptureQueriesContext) -> list[str]:
    sent = [query["sql"].strip() for query in statements.captured_queries]
    return [sql for sql in sent if sql.startswith(FRAMES)]


@every_read
@pytest.mark.usefixtures("however_many")
def test_within_a_transaction_it_sets_no_savepoint(site: Site, read: Callable[[Site], Any]) -> None:
    fill(site)
    with CaptureQueriesContext(connection) as statements:
        assert read(site)
    assert len(statements) > 0
    assert frames(statements) == []


@every_read
@pytest.mark.usefixtures("however_many")
@pytest.mark.django_db(transaction=True)
def test_outside_of_one_it_begins_none(site: Site, read: Callable[[Site], Any]) -> None:
    fill(site)
    with CaptureQueriesContext(connection) as statements:
        assert read(site)
    assert frames(statements) == []


@contextmanager
def a_writer() -> Iterator[None]:
    """Have somebody else write meanwhile, and do not wait for that."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(str(connection.settings_dict["NAME"]), isolation_level=None, timeout=0)
    with closing(other):
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE django_zizq_budget SET in_use = 0")
        yield
        other.execute("ROLLBACK")
    connection.close()  # the next one waits as the settings say


@every_read
@pytest.mark.usefixtures("however_many")
@pytest.mark.django_db(transaction=True)
def test_it_answers_while_somebody_else_writes(site: Site, read: Callable[[Site], Any]) -> None:
    fill(site)
    with a_writer():
        assert read(site)
