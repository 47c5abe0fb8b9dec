"""A site whose routers put the queue into a database of its own: the others are never asked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

EVERYTHING = """
import django; django.setup()
import asyncio, io
from datetime import timedelta
from django.core.management import call_command
from django.db import connections, transaction
from django_zizq import Binding, BudgetPatch, BudgetPolicy, RateLimited, Retry, WhileInFlight, job
from django_zizq.models import Budget, Job, JobBinding, JobError, Worker
from django_zizq.testing import JobRunner

one_at_a_time = BudgetPolicy(1, WhileInFlight())

@job(name="routed.work", budgets=[Binding("stripe", create_with=one_at_a_time)])
def work(word="a"):
    if word == "retried" and not Job.objects.get(payload__word=word).attempts:
        raise Retry(delay=timedelta(0))
    if word == "limited" and not limited:
        limited.append(word)
        raise RateLimited("stripe", timedelta(0))
    return word

limited = []
heard = []
queue = connections["queue"]
if queue.vendor == "postgresql":
    listener = queue.copy("listener")
    with listener.cursor() as cursor:
        cursor.execute("LISTEN django_zizq")
    listener.connection.add_notify_handler(lambda notify: heard.append(notify.channel))

def news():
    if queue.vendor == "postgresql":
        with listener.cursor() as cursor:
            cursor.execute("SELECT 1")
    found, heard[:] = len(heard), []
    return found

expected = int(queue.vendor == "postgresql")
hooks = []
with transaction.atomic(using="queue"):
    work.enqueue(word="b")
    transaction.on_commit(lambda: hooks.append(Job.objects.count()), using="queue")
    assert (hooks, news()) == ([], 0)
assert (hooks, news()) == ([1], expected)
try:
    with transaction.atomic(using="queue"):
        work.using(budgets=[Binding("new", create_with=one_at_a_time)]).enqueue()
        raise KeyError
except KeyError:
    assert (Job.objects.count(), Budget.objects.count(), news()) == (1, 1, 0)

several = work.enqueue_many([{"word": "retried"}, {"word": "limited"}])
unique = work.using(unique_key="once").enqueue()
assert work.using(unique_key="once").enqueue().is_duplicate
later = work.using(delay=timedelta(hours=1), budgets=[]).enqueue()
assert asyncio.run(work.aenqueue(word="c")).pk
assert {one._state.db for one in [*several, unique, later, *Job.objects.all()]} == {"queue"}

budget = Budget.objects.update_budget("stripe", BudgetPatch().allocation(2))
budget.pause()
assert Job.objects.parked("stripe").count() == 5
budget.resume()
Budget.objects.put_budget("audit", one_at_a_time)
Budget(key="saved", allocation=3, strategy="while_in_flight").save()
Budget.objects.get(key="saved").delete()
assert str(budget.explain())
assert (budget.unfinished().total, budget.available()) == (5, 2)
news()
later.bind_budget("audit")
later.rebind_budget("audit", 1)
later.unbind_all_budgets()
later.run_now()
assert news() >= expected
assert str(later.explain())
assert Job.objects.filter(pk=later.pk).bind_budget("audit").changed == 1
assert Job.objects.budgets_key("audit").clear_budgets().changed == 1
later.kill("not needed")
later.requeue()
later.delete()
unique.refresh_from_db()
assert [one.key for one in unique.budgets] == ["stripe"]
assert unique.bindings.count() == 1
assert Job.objects.prefetch_related("bindings", "errors").select_related("worker").count() == 5

out = io.StringIO()
call_command("zizq_dispatch", until_idle=True, stdout=out)
assert {one.status for one in Job.objects.all()} == {"completed"}, list(Job.objects.values())
assert JobError.objects.get().job.payload == {"word": "retried"}
assert not Worker.objects.exists() and JobBinding.objects.count() == 5
work.enqueue(word="d")
ran = JobRunner().run()
assert [one.payload for one in ran] == [{"word": "d"}]
call_command("zizq_budgets", "list", stdout=out)
call_command("zizq_budgets", "pause", "stripe", stdout=out)
call_command("zizq_budgets", "create", "made", "--while-in-flight", "3", stdout=out)
call_command("zizq_jobs", "list", stdout=out)
call_command("zizq_jobs", "show", str(unique.pk), stdout=out)
call_command("zizq_check", stdout=out)
call_command("check", stdout=out)
assert Budget.objects.get(key="stripe").is_paused()
assert "All is well." in out.getvalue() and "routed.work" in out.getvalue(), out.getvalue()
assert Job.objects.finished().delete()[0] == 6
if queue.vendor == "postgresql":
    listener.close()
"""


TWO_DATABASES = """
import django; django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, transaction
from django_zizq import BudgetPolicy, WhileInFlight, job
from django_zizq.models import Budget, Job

for alias in ("default", "queue"):
    call_command("migrate", database=alias, verbosity=0)
tables = {alias: connections[alias].introspection.table_names() for alias in ("default", "queue")}
assert not [table for table in tables["default"] if "zizq" in table], tables
assert not [table for table in tables["queue"] if "auth" in table], tables

hooks = []

@job(name="routed.user", budgets=["users"])
def make_user(name):
    with transaction.atomic():
        User.objects.create(username=name)
        transaction.on_commit(lambda: hooks.append(name))
        if name == "bad":
            raise ValueError(name)

Budget.objects.create_budget("users", BudgetPolicy(1, WhileInFlight()))
with transaction.atomic():
    User.objects.create(username="boss")
    transaction.on_commit(lambda: make_user.enqueue(name="clerk"))
    assert not Job.objects.exists()
try:
    with transaction.atomic():
        User.objects.create(username="nobody")
        transaction.on_commit(lambda: make_user.enqueue(name="never"))
        raise KeyError
except KeyError:
    pass
make_user.using(retry_limit=0).enqueue(name="bad")
call_command("zizq_dispatch", until_idle=True, verbosity=0)
stored = list(Job.objects.order_by("id").values_list("payload__name", "status"))
assert stored == [("clerk", "completed"), ("bad", "dead")], stored
assert set(User.objects.values_list("username", flat=True)) == {"boss", "clerk"}
assert hooks == ["clerk"]
assert Budget.objects.get().in_use == 0
call_command("zizq_check", verbosity=0)
for alias in connections:
    connections[alias].close()
"""


def run(script: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env=environment | {"DJANGO_SETTINGS_MODULE": "tests.routed_settings"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.direct("LISTEN")
@pytest.mark.django_db(transaction=True)
def test_nothing_is_asked_of_a_default_database_that_has_no_queue(
    process_environment: dict[str, str],
) -> None:
    run(EVERYTHING, process_environment)


@pytest.fixture
def new_databases(transactional_db: None, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The names of two empty databases beside that of the test."""
    if connection.vendor != "postgresql":
        yield str(tmp_path / "default.sqlite3"), str(tmp_path / "queue.sqlite3")
        return
    names = ("zizq_routed_default", "zizq_routed_queue")
    with connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"CREATE DATABASE {name}")
        try:
            yield names
        finally:
            for name in names:
                cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_tables_and_the_jobs_are_in_the_database_of_the_queue_alone(
    new_databases: tuple[str, str], process_environment: dict[str, str]
) -> None:
    default, queue = new_databases
    names = {"ZIZQ_TEST_DEFAULT_NAME": default, "ZIZQ_TEST_DATABASE_NAME": queue}
    run(TWO_DATABASES, process_environment | names)
