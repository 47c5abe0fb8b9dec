"""Which jobs the filters of ``zizq_jobs`` select."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_zizq import enqueue
from django_zizq.models import Job
from tests.commands.calling import call, call_json, misuse
from tests.core.limits import cc
from tests.spec.harness import Site, Statements

pytestmark = pytest.mark.django_db


def found(*filters: str) -> list[int]:
    """The ids of the jobs that the filters let through."""
    return [job["id"] for job in call_json("zizq_jobs", "list", *filters)["jobs"]]


def ids(*jobs: Job) -> list[int]:
    return [job.pk for job in jobs]


def test_queues_types_and_priorities_each_take_a_list() -> None:
    a = enqueue("first", queue="billing", priority=10)
    b = enqueue("second", queue="mail", priority=20)
    c = enqueue("third", queue="slow", priority=30)
    assert found("--queue", "billing,slow") == ids(a, c)
    assert found("--type", "second") == ids(b)
    assert found("--priority", "10-20") == ids(a, b)
    assert found("--priority", "10,30") == ids(a, c)


def test_ids_are_listed_one_by_one_and_in_ranges() -> None:
    jobs = [enqueue("task") for _ in range(6)]
    first = jobs[0].pk
    assert found("--id", f"{first},{first + 2}-{first + 3}") == ids(jobs[0], jobs[2], jobs[3])


def test_all_the_filters_that_are_stated_apply() -> None:
    enqueue("first", queue="billing")
    wanted = enqueue("first", queue="mail")
    enqueue("second", queue="mail")
    assert found("--type", "first", "--queue", "mail") == ids(wanted)


def test_statuses_go_by_their_names_and_by_the_words_for_several(site: Site) -> None:
    dead = site.enqueue(priority=0)
    dead.kill()
    running = site.enqueue(priority=0)
    site.claim()
    ready, scheduled = enqueue("task"), enqueue("task", delay=timedelta(hours=1))
    assert found("--status", "dead") == found("--status", "finished") == ids(dead)
    assert found("--status", "in_flight") == ids(running)
    assert found("--status", "queued") == ids(ready, scheduled)
    assert found("--status", "scheduled,dead") == ids(dead, scheduled)
    assert found("--status", "unfinished") == ids(running, ready, scheduled)
    assert found("--status", "completed") == []


def test_parked_jobs_are_a_status_of_their_own_and_go_with_others(site: Site) -> None:
    site.create("stripe", cc(1))
    site.spend("stripe")
    parked, free = site.enqueue("stripe"), site.enqueue()
    dead = site.enqueue()
    dead.kill()
    assert found("--status", "parked") == ids(parked)
    assert found("--status", "parked,dead") == ids(parked, dead)
    assert found("--status", "ready") == ids(parked, free)
    assert found("--status", "parked", "--budget", "emails") == []


def test_budgets_select_what_is_bound_to_any_of_them(site: Site) -> None:
    for key in ("stripe", "emails", "pdf"):
        site.create(key, cc(3))
    a, b, both = site.enqueue("stripe"), site.enqueue("emails"), site.enqueue("stripe", "emails")
    site.enqueue("pdf")
    assert found("--budget", "stripe") == ids(a, both)
    assert found("--budget", "stripe,emails") == ids(a, b, both)


def test_times_are_compared_with_when_jobs_were_enqueued_and_when_they_are_due() -> None:
    now, later = enqueue("task"), enqueue("task", delay=timedelta(hours=5))
    assert found("--created-after", "-2h") == ids(now, later)
    assert found("--created-before", "-2h") == []
    assert found("--created-after=+2h") == []
    assert found("--ready-after", "+2h") == ids(later)
    assert found("--ready-before", "+2h") == ids(now)
    assert found("--created-before", "2020-01-01") == []
    assert found("--created-after", "2020-01-01T00:00Z") == ids(now, later)


@pytest.mark.parametrize(
    ("stated", "payload"),
    [
        ("to=a@example.com", {"to": "a@example.com"}),
        ("user.id=7", {"user": {"id": 7}}),
        ("user.id=-7", {"user": {"id": -7}}),
        ("user.tags.1=b", {"user": {"tags": ["a", "b"]}}),
        ('id="7"', {"id": "7"}),
        ("share=0.5", {"share": 0.5}),
        ("urgent=true", {"urgent": True}),
        ("urgent=false", {"urgent": False}),
        ("until=null", {"until": None}),
        ("note=", {"note": ""}),
        ("note=a=b", {"note": "a=b"}),
        ("note=NaN", {"note": "NaN"}),
        ("lines=[1,2]", {"lines": [1, 2]}),
        ("a__in=1", {"a__in": 1}),
        ("isnull=1", {"isnull": 1}),
        ("pay%=1", {"pay%": 1}),
        ("it's=1", {"it's": 1}),
        ("naïve.é=1", {"naïve": {"é": 1}}),
        ("naïve=é", {"naïve": "é"}),
    ],
)
def test_a_payload_is_searched_by_key_and_value(stated: str, payload: Any) -> None:
    enqueue("task", payload={"other": 1})
    enqueue("task", payload=dict.fromkeys(payload, "something else"))
    wanted = enqueue("task", payload=payload)
    assert found("--payload", stated) == ids(wanted)


def test_a_payload_filter_may_be_repeated() -> None:
    enqueue("task", payload={"a": 1, "b": 1})
    wanted = enqueue("task", payload={"a": 1, "b": 2})
    assert found("--payload", "a=1", "--payload", "b=2") == ids(wanted)
    assert found("--payload", "a=1", "--payload", "a=2") == []


OPTIONS = (
    "--queue",
    "--type",
    "--status",
    "--budget",
    "--id",
    "--priority",
    "--created-after",
    "--created-before",
    "--ready-after",
    "--ready-before",
    "--payload",
)


@pytest.mark.parametrize("option", OPTIONS)
def test_an_empty_value_matches_nothing_whatever_else_is_stated(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    enqueue("task")
    assert found(option, "") == []
    other = "--queue" if option != "--queue" else "--type"
    value = "default" if other == "--queue" else "task"
    for verb in (["delete"], ["kill"], ["clear"]):
        with Statements() as statements:
            answer = call("zizq_jobs", *verb, option, "", other, value)
        assert answer.startswith("0 jobs ")
        assert statements.about('"django_zizq_job"') == []
    assert Job.objects.ready().count() == 1
    assert f"{option} is empty, so no job is selected." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stated", "fault"),
    [
        (["--queue", "a,,b"], "argument --queue: name '' must not be empty"),
        (["--type", "mail*"], "argument --type: name 'mail*' must not contain '*'"),
        (["--status", "running"], "'running' is none of scheduled, ready, in_flight"),
        (["--status", "ready,"], "'' is none of scheduled"),
        (["--id", "1-"], "argument --id: '1-' is neither a number nor a range"),
        (["--priority", "70000"], "argument --priority: '70000' is above 65535"),
        (["--created-after", "yesterday"], "argument --created-after: 'yesterday' is not a time"),
        (["--ready-before", "2h"], "'2h' is not a time such as"),
        (["--payload", "user"], "'user' is not of the form KEY=VALUE"),
        (["--payload", "user..id=7"], "a key is empty"),
        (["--payload", "=7"], "a key is empty"),
        (["--payload", "list.-1=7"], "'-1' is no place in a list"),
        (["--payload", 'a="\\u0000"'], "no payload holds this"),
        (["--payload", "a=1e999"], "no payload holds this"),
        (["--payload", f"a={'[' * 100_000}"], "nested too deep"),
        (["--payload", "a=\udcff"], "no payload holds this"),
        (["--queue", "a", "--queue", "b"], "argument --queue: is stated twice"),
        (["--que", "a"], "unrecognized arguments: --que a"),
        (["--limit", "0"], "'0' is not a number from 1 to 10000"),
    ],
)
def test_a_wrong_filter_is_wrong_usage(stated: list[str], fault: str) -> None:
    assert fault in misuse("zizq_jobs", "list", *stated)
