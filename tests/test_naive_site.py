"""A site with USE_TZ off: the same behaviour, in local time."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import django; django.setup()
from datetime import UTC, datetime, timedelta
from django.core.management import call_command
from django_zizq import Binding, BudgetPolicy, InvalidJob, TimeBased, job
from django_zizq.models import Budget, Job
from django_zizq.testing import JobRunner

@job(name="naive.note")
def note(word): return word

per_second = BudgetPolicy(60, TimeBased(timedelta(minutes=1), burst=1))
emails = note.using(budgets=[Binding("emails", create_with=per_second)])
emails.enqueue_many([{"word": "a"}, {"word": "b"}])
later = note.using(delay=timedelta(hours=1)).enqueue(word="c")
assert abs(later.ready_at - datetime.now() - timedelta(hours=1)) < timedelta(minutes=1)
runner = JobRunner()
ran = [[one.payload["word"] for one in runner.run()]]
for step in (timedelta(seconds=1), timedelta(hours=1)):
    runner.advance(step)
    ran.append([one.payload["word"] for one in runner.run()])
assert ran == [["a"], ["b"], ["c"]], ran
emails.enqueue(word="d")
call_command("zizq_dispatch", until_idle=True)
job = Job.objects.latest("pk")
assert job.status == "completed"
assert abs(job.completed_at - datetime.now()) < timedelta(hours=2)
try:
    note.using(ready_at=datetime.now(UTC)).enqueue(word="e")
except InvalidJob as error:
    assert "must be naive" in str(error)
else:
    raise AssertionError("an aware ready_at was taken")
"""


@pytest.mark.django_db(transaction=True)
def test_jobs_and_budgets_work_in_naive_local_time(process_environment: dict[str, str]) -> None:
    environment = process_environment | {"DJANGO_SETTINGS_MODULE": "tests.naive_settings"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
