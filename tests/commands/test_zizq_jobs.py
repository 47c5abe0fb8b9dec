"""The subcommands of ``manage.py zizq_jobs`` that only look: list, count, show and explain."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import OperationalError, ProgrammingError
from django.utils import timezone

from django_zizq import Backoff, Binding, enqueue
from django_zizq.models import Job
from django_zizq.models.job_queryset import JobQuerySet
from django_zizq.outcomes import Failure
from tests.commands import calling
from tests.commands.calling import ROOT, Terminal, manage, rows
from tests.core.limits import cc
from tests.spec.harness import Site, Statements

pytestmark = pytest.mark.django_db

call = partial(calling.call, "zizq_jobs")
call_json = partial(calling.call_json, "zizq_jobs")
refusal = partial(calling.refusal, "zizq_jobs")
misuse = partial(calling.misuse, "zizq_jobs")


def listed(*arguments: str) -> list[int]:
    return [int(row[0]) for row in rows(call("list", *arguments))[1:]]


def test_the_list_shows_what_a_job_is_and_what_it_waits_for(site: Site) -> None:
    site.create("stripe", cc(2))
    site.create("emails", cc(5))
    running = site.spend("stripe")
    waiting = site.enqueue(Binding("stripe", 2), "emails", type="charge", queue="billing")
    later = enqueue("report", priority=100, delay=timedelta(days=9))
    due = timezone.localtime(later.ready_at).strftime("%Y-%m-%d %H:%M")
    then = timezone.localtime(waiting.ready_at).strftime("%Y-%m-%d %H:%M")
    assert rows(call("list")) == [
        ["id", "type", "queue", "status", "priority", "attempts", "ready at", "budgets"],
        [str(running.id), "task", "default", "in_flight", "0", "0", then, "stripe"],
        [str(later.pk), "report", "default", "scheduled", "100", "0", due, "-"],
        [str(waiting.pk), "charge", "billing", "parked", "32768", "0", then, "stripe x2, emails"],
    ]


def test_finished_jobs_do_not_hide_the_others(site: Site) -> None:
    done = site.enqueue()
    site.finish(site.claim())
    waiting = site.enqueue(priority=60_000)
    assert listed() == [waiting.pk]
    assert listed("--status", "finished") == listed("--id", str(done.pk)) == [done.pk]
    assert listed("--status", "completed,ready") == [done.pk, waiting.pk]


def test_what_is_due_today_is_listed_with_its_time_alone() -> None:
    job = enqueue("task")
    local = timezone.localtime(job.ready_at)
    assert rows(call("list"))[1][6] in (
        local.strftime("%H:%M:%S"),
        local.strftime("%Y-%m-%d %H:%M"),  # midnight has just passed
    )


def test_the_list_is_in_the_order_of_dispatch_and_says_how_many_more_there_are() -> None:
    jobs = [enqueue("task", priority=priority).pk for priority in (20, 10, 30, 10)]
    assert listed() == [jobs[1], jobs[3], jobs[0], jobs[2]]
    text = call("list", "--limit", 3)
    assert text.endswith("and 1 more; --limit N lists more of them.\n")
    assert len(text.splitlines()) == 1 + 3 + 1
    assert "more" not in call("list", "--limit", 4)


def test_no_job_is_said_in_words() -> None:
    assert call("list") == "No job is unfinished.\n"
    assert call("list", "--queue", "billing") == "There is no such job.\n"


def test_the_list_asks_as_much_of_the_database_however_many_jobs_there_are(site: Site) -> None:
    def cost() -> int:
        with Statements() as statements:
            call("list")
        return len(statements.sent)

    site.create("stripe", cc(1))
    site.create("emails", cc(1))
    site.spend("stripe")
    site.enqueue("stripe")
    before = cost()
    site.enqueue_many(30, "stripe", "emails")
    assert cost() == before


def test_the_list_is_there_for_programs(site: Site) -> None:
    site.create("stripe", cc(1))
    site.spend("stripe")
    job = site.enqueue("stripe", payload={"to": "é"}, unique_key="k")
    answer = call_json("list", "--status", "ready", "--limit", 1)
    assert answer["count"] == 1
    (facts,) = answer["jobs"]
    assert facts["id"] == job.pk
    assert (facts["status"], facts["parked"]) == ("ready", True)
    assert facts["budgets"] == [{"key": "stripe", "cost": 1}]
    assert facts["payload"] == {"to": "é"}
    assert facts["ready_at"] == timezone.localtime(job.ready_at).isoformat()


def test_jobs_are_counted_at_once_or_by_status_queue_or_type(site: Site) -> None:
    site.create("stripe", cc(1))
    site.spend("stripe")
    site.enqueue_many(2, "stripe", type="charge", queue="billing")
    site.enqueue(type="report")
    enqueue("report", delay=timedelta(days=1)).kill()
    enqueue("report", delay=timedelta(days=1))
    assert call("count") == "6\n"
    assert call("count", "--type", "report") == "3\n"
    assert rows(call("count", "--by", "status")) == [
        ["status", "jobs"],
        ["scheduled", "1"],
        ["ready", "1"],
        ["parked", "2"],
        ["in_flight", "1"],
        ["dead", "1"],
        ["all", "6"],
    ]
    assert rows(call("count", "--by", "queue"))[1:] == [
        ["default", "4"],
        ["billing", "2"],
        ["all", "6"],
    ]
    assert call_json("count") == {"count": 6}
    assert call_json("count", "--by", "type") == {
        "count": 6,
        "by": {"report": 3, "charge": 2, "task": 1},
    }
    assert call_json("count", "--by", "status", "--queue", "nope") == {"count": 0, "by": {}}


@pytest.fixture
def failed(site: Site) -> Job:
    """A job that failed once and is scheduled again."""
    site.create("stripe", cc(2))
    backoff = Backoff(1.0, timedelta(days=9), timedelta(0))
    job = site.enqueue(
        "stripe", payload={"invoice": "inv_1", "note": "naïve"}, unique_key="inv_1", backoff=backoff
    )
    failure = Failure(
        error_type="billing.Declined",
        message="the card\nwas \x1b[31mdeclined",
        traceback="Traceback: line 1\nline 2",
    )
    site.finish(site.claim(), outcome=failure)
    job.refresh_from_db()
    return job


def test_show_tells_all_there_is_to_know(failed: Job) -> None:
    text = call("show", failed.pk)
    lines = [line.rstrip(",") for line in text.splitlines()]
    assert lines[0].startswith(f"Job #{failed.pk} task in queue 'default' is scheduled to be tried")
    for line in (
        "status        scheduled",
        "budgets       stripe",
        "attempts      1",
        "unique key    inv_1, while queued",
        f"created at    {timezone.localtime(failed.created_at).isoformat(' ', 'milliseconds')}",
        '    "invoice": "inv_1"',
        '    "note": "naïve"',
        "  billing.Declined: the card",
        "  was \\x1b[31mdeclined",
    ):
        assert line in lines
    assert "Traceback" not in text
    assert "\x1b" not in text
    assert "  line 2" in call("show", failed.pk, "--traceback").splitlines()


def test_show_is_there_for_programs(failed: Job) -> None:
    facts = call_json("show", failed.pk)
    assert facts["payload"] == {"invoice": "inv_1", "note": "naïve"}
    assert facts["errors"][0]["traceback"] == "Traceback: line 1\nline 2"
    assert facts["explanation"]["status"] == facts["status"] == "scheduled"


def test_show_has_the_result_of_what_completed(site: Site) -> None:
    job = site.enqueue()
    site.finish(site.claim())
    Job.objects.filter(pk=job.pk).update(result={"sent": 3})
    lines = call("show", job.pk).splitlines()
    assert lines[0].endswith("is completed.")
    assert '  "sent": 3' in "\n".join(lines)
    assert "budgets       none, so unthrottled" in lines


def test_a_parked_job_is_shown_as_parked_and_explained(site: Site) -> None:
    site.create("stripe", cc(1))
    site.spend("stripe")
    job = site.enqueue("stripe")
    assert "status        ready (parked)" in call("show", job.pk).splitlines()
    assert call("explain", job.pk) == f"{job.explain()}\n"
    assert call_json("explain", job.pk)["parked"] is True


@pytest.mark.parametrize("verb", ["show", "explain"])
def test_a_job_that_is_not_there_is_refused(verb: str) -> None:
    assert refusal(verb, 999).startswith("Job 999 does not exist")
    assert "'x' is not the id of a job" in misuse(verb, "x")


def test_an_outage_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> Any:
        def count(self: JobQuerySet) -> int:
            raise error

        return count

    monkeypatch.setattr(JobQuerySet, "count", fail(OperationalError("the server went away")))
    assert refusal("count") == "The database 'default' is out of reach: the server went away"
    monkeypatch.setattr(JobQuerySet, "count", fail(ProgrammingError("a bug")))
    with pytest.raises(ProgrammingError):
        call("count")


def test_an_interrupt_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(self: JobQuerySet) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(JobQuerySet, "count", press)
    with pytest.raises(CommandError, match="Interrupted") as caught:
        call("count")
    assert caught.value.returncode == 130


def test_lines_fold_at_a_terminal(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    budgets = [f"tenant:{name}-corporation-of-america" for name in ("acme", "initech", "hooli")]
    for key in budgets:
        site.create(key, cc(1))
    job = site.enqueue(
        *budgets, type="billing.jobs.charge_the_card_of_the_customer", queue="billing"
    )
    for arguments in (["list"], ["explain", job.pk], ["count", "--by", "type"]):
        screen = Terminal()
        call(*arguments, stdout=screen)
        assert max(map(len, screen.lines)) <= 100, arguments
    row = call("list").splitlines()[1]
    assert row.endswith(", ".join(budgets))
    assert "billing.jobs.charge_the_card_of_the_customer " in row


@pytest.mark.django_db(transaction=True)
def test_a_pipe_that_is_closed_early_ends_it_quietly(process_environment: dict[str, str]) -> None:
    enqueue("task")
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-m", "django", "zizq_jobs", "list"],
        cwd=ROOT,
        env=process_environment,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.django_db(transaction=True)
def test_a_process_of_its_own_answers_in_plain_text(process_environment: dict[str, str]) -> None:
    job = enqueue("task")
    shown = manage(process_environment, "zizq_jobs", "list", "--created-after", "-2h")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "\x1b" not in shown.stdout
    assert str(job.pk) in shown.stdout
    missing = manage(process_environment, "zizq_jobs", "show", "999999")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("CommandError: Job 999999 does not exist")
    wrong = manage(process_environment, "zizq_jobs", "list", "--created-after", "yesterday")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'yesterday' is not a time" in wrong.stderr
    assert "Traceback" not in missing.stderr + wrong.stderr
