"""``manage.py zizq_dispatch``: what it runs, what it says, and how it ends."""

from __future__ import annotations

import io
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from django_zizq import Backoff, BudgetPolicy, Kill, TimeBased, WhileInFlight, enqueue, job
from django_zizq.console import progress_bar
from django_zizq.models import Budget, Job, Worker

pytestmark = pytest.mark.django_db(transaction=True)


@job(name="command.ok")
def ok(word: str = "") -> str:
    return word


@job(name="command.fail", backoff=Backoff(1.0, timedelta(hours=1), timedelta(0)))
def fail() -> None:
    raise ValueError("the card\nwas declined")


@job(name="command.kill")
def kill() -> None:
    raise Kill("no such customer")


@job(name="command.exit")
def leave() -> None:
    raise SystemExit(3)


@job(name="command.set")
def give_a_set() -> set[int]:
    return {1}


@job(name="command.async")
async def asynchronous() -> list[int]:
    return [Job.objects.none().count() for _ in ()] or [1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="django_zizq")
    return caplog


def dispatch(*arguments: str, stdout: io.StringIO | None = None) -> str:
    stdout = stdout or io.StringIO()
    call_command("zizq_dispatch", *arguments, stdout=stdout)
    return stdout.getvalue()


def statuses() -> dict[str, str]:
    return dict(Job.objects.values_list("type", "status"))


def test_until_idle_it_runs_what_there_is_and_ends(log: pytest.LogCaptureFixture) -> None:
    ok.enqueue(word="a")
    asynchronous.enqueue()
    assert dispatch("--until-idle") == ""
    assert dict(Job.objects.values_list("type", "result")) == {
        "command.ok": "a",
        "command.async": [1],
    }
    assert not Worker.objects.exists()
    assert "dispatches every queue to 8 threads" in log.text
    assert "stops: 2 completed" in log.text


def test_until_idle_it_waits_for_the_tokens_that_parked_jobs_need() -> None:
    Budget.objects.create_budget(
        "emails", BudgetPolicy(20, TimeBased(timedelta(seconds=1), burst=1))
    )
    ok.using(budgets=["emails"]).enqueue_many([{}] * 4)
    dispatch("--until-idle")
    starts = list(Job.objects.order_by("dequeued_at").values_list("dequeued_at", flat=True))
    assert [job.status for job in Job.objects.all()] == ["completed"] * 4
    first, *later = starts
    assert first is not None
    for place, start in enumerate(later, 1):
        assert start is not None
        assert start - first >= timedelta(milliseconds=50 * place)


def test_until_idle_it_waits_for_a_pause_with_an_end_and_for_no_other() -> None:
    for key in ("stripe", "emails"):
        Budget.objects.create_budget(key, BudgetPolicy(3, WhileInFlight()))
        ok.using(budgets=[key]).enqueue(word=key)
    Budget.objects.get(key="stripe").pause()
    soon = timezone.now() + timedelta(milliseconds=300)
    Budget.objects.get(key="emails").pause(soon)
    dispatch("--until-idle")
    left = Job.objects.ready().get()
    assert left.payload == {"word": "stripe"}
    started_at = Job.objects.finished().get().dequeued_at
    assert started_at is not None
    assert started_at >= soon


def test_failures_end_as_the_handler_or_the_rules_say_with_a_line_each(
    log: pytest.LogCaptureFixture,
) -> None:
    for type in (fail, kill, leave, give_a_set):
        type.enqueue()
    dispatch("--until-idle")
    assert statuses() == {
        "command.fail": "scheduled",
        "command.kill": "dead",
        "command.exit": "scheduled",
        "command.set": "completed",
    }
    lines = [record.getMessage() for record in log.records]
    text = "\n".join(lines)
    assert "failed (attempt 1), next try in 1:00:01: ValueError: the card" in text
    assert "was killed: no such customer" in text
    assert "SystemExit: 3" in text
    assert "its result is not kept: result: must be JSON" in text
    assert "stops: 1 completed, 2 failed and will be tried again, 1 dead" in text
    assert not any("\n" in line for line in lines)


def test_a_job_of_a_type_nobody_registered_stays_queued_and_is_warned_of_once(
    log: pytest.LogCaptureFixture,
) -> None:
    for _ in range(3):
        enqueue("command.ghost")
    ok.enqueue_many([{}] * 30)
    dispatch("--until-idle", "--threads", "1")
    assert statuses() == {"command.ghost": "ready", "command.ok": "completed"}
    warnings = [r.getMessage() for r in log.records if "command.ghost" in r.getMessage()]
    assert len(warnings) == 1
    assert "no handler is registered" in warnings[0]


def test_only_the_queues_named_are_served(log: pytest.LogCaptureFixture) -> None:
    for queue in ("a", "b", "c"):
        ok.using(queue=queue).enqueue()
    dispatch("--until-idle", "--queue", "a,b")
    assert set(Job.objects.ready().values_list("queue", flat=True)) == {"c"}
    assert "dispatches the queues a, b to 8 threads" in log.text


def test_once_claims_one_time_and_runs_what_that_gave() -> None:
    ok.enqueue_many([{}] * 5)
    dispatch("--once", "--threads", "2", "--prefetch", "0")
    assert Job.objects.filter(status="completed").count() == 2
    assert Job.objects.ready().count() == 3


def test_progress_is_shown_on_a_terminal_and_nothing_in_a_pipe() -> None:
    ok.enqueue_many([{}] * 5)
    assert "5/5" in dispatch("--until-idle", stdout=Terminal())
    ok.enqueue_many([{}] * 5)
    assert dispatch("--until-idle") == ""
    with progress_bar(Terminal(), shown=False) as show:
        assert show is None


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--queue", "a,,b"], "queue '' must not be empty"),
        (["--queue", "mail*"], "must not contain"),
        (["--threads", "0"], "'0' is not a number from 1 to 10000"),
        (["--threads", "-3"], "is not a number"),
        (["--processes", "x"], "'x' is not a number"),
        (["--grace", "-1"], "'-1' is not a number of seconds"),
        (["--poll-interval", "0"], "at least 0.01"),
        (["--poll-interval", "nan"], "'nan' is not a number of seconds"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], fault: str) -> None:
    with pytest.raises(CommandError, match="argument --") as caught:
        dispatch(*[f"{arguments[0]}={arguments[1]}"])
    assert fault in str(caught.value)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_missing_tables_are_said_in_a_line(monkeypatch: pytest.MonkeyPatch, processes: str) -> None:
    monkeypatch.setattr(Job._meta, "db_table", "not_there")
    with pytest.raises(CommandError, match=r"run 'manage\.py migrate' first"):
        dispatch("--processes", processes)


def test_the_help_fits_a_terminal(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        call_command("zizq_dispatch", "--help")
    text = capsys.readouterr().out
    for option in ("--queue", "--threads", "--processes", "--until-idle", "--once", "--grace"):
        assert option in text
