"""The row of a job: what the database itself refuses, its lane, and selections of jobs."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import CheckConstraint

from django_zizq import Binding, JobStatus
from django_zizq.models import Job, JobBinding
from django_zizq.models.lane import lane_of
from tests.core.limits import cc
from tests.spec.harness import KILLED, Site, Statements, instant

STATUS = "zizq_status_has_its_fields"
NUMBERS = "zizq_numbers_in_range"
BROKEN: list[tuple[str, str, dict[str, Any]]] = [
    (STATUS, "ready", {"status": "parked"}),
    (STATUS, "ready", {"status": "scheduled", "purge_at": instant(0)}),
    (STATUS, "ready", {"worker": 1}),
    (STATUS, "ready", {"completed_at": instant(0)}),
    (STATUS, "in_flight", {"dequeued_at": None}),
    (STATUS, "in_flight", {"worker": None}),
    (STATUS, "in_flight", {"completed_at": instant(0)}),
    (STATUS, "in_flight", {"purge_at": instant(0)}),
    (STATUS, "completed", {"worker": 1}),
    (STATUS, "completed", {"completed_at": None}),
    (STATUS, "completed", {"purge_at": None}),
    (STATUS, "dead", {"worker": 1}),
    (STATUS, "dead", {"failed_at": None}),
    (STATUS, "dead", {"completed_at": instant(0)}),
    (STATUS, "dead", {"purge_at": None}),
    (NUMBERS, "ready", {"priority": -1}),
    (NUMBERS, "ready", {"priority": 65_536}),
    (NUMBERS, "ready", {"attempts": -1}),
    (NUMBERS, "ready", {"losses": -1}),
    (NUMBERS, "ready", {"retry_limit": -1}),
    ("zizq_unique_key_has_scope", "ready", {"unique_key": "k"}),
    ("zizq_unique_key_has_scope", "ready", {"unique_while": "queued"}),
]


def make(site: Site, status: str) -> None:
    """Leave one job of that status."""
    site.enqueue()
    if status == "ready":
        return
    claimed = site.claim()
    if status != "in_flight":
        site.finish(claimed, outcome=KILLED if status == "dead" else None)
    assert Job.objects.get().status == status


@pytest.mark.parametrize(("constraint", "status", "values"), BROKEN, ids=str)
def test_the_database_refuses_what_breaks_a_rule(
    site: Site, constraint: str, status: str, values: dict[str, Any]
) -> None:
    make(site, status)
    before = Job.objects.values().get()
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Job.objects.update(**values)
    assert Job.objects.values().get() == before


def test_every_rule_of_the_table_is_tried() -> None:
    rules = {one.name for one in Job._meta.constraints if isinstance(one, CheckConstraint)}
    assert rules == {name for name, _, _ in BROKEN}


def test_the_database_lets_one_job_hold_a_unique_key(site: Site) -> None:
    site.enqueue(unique_key="a")
    site.enqueue(unique_key="b")
    with pytest.raises(IntegrityError), transaction.atomic():
        Job.objects.update(unique_key="a")


def test_a_lane_is_where_the_jobs_wait_for_the_same(site: Site) -> None:
    lane = lane_of("emails", "send", (1, 2))
    assert lane == lane_of("emails", "send", (2, 1))
    others = {
        lane_of("emails", "send", (1,)),
        lane_of("emails", "send", (12,)),
        lane_of("emails", "send", ()),
        lane_of("emails", "draw", (1, 2)),
        lane_of("reports", "send", (1, 2)),
    }
    assert len(others | {lane}) == 6
    assert all(0 <= one < 2**63 for one in others)


def test_an_enqueued_job_stands_in_the_lane_of_its_budgets_whatever_their_costs(
    site: Site,
) -> None:
    a, b = site.create("a", cc(5)), site.create("b", cc(5))
    site.enqueue("a", "b")
    site.enqueue(Binding("b", 3), "a")
    lanes = set(Job.objects.values_list("lane", flat=True))
    assert lanes == {lane_of("default", "task", (a.pk, b.pk))}


def test_its_budgets_are_read_in_one_query_or_prefetched(site: Site) -> None:
    site.create("a", cc(5))
    site.create("b", cc(5))
    site.enqueue_many(3, Binding("b", 2), "a")
    with Statements() as statements:
        shown = [job.budgets for job in Job.objects.prefetch_related("bindings")]
    assert shown == [[Binding("b", 2), Binding("a")]] * 3
    assert len(statements.sent) == 2


def test_selections_are_named_for_what_they_hold(site: Site) -> None:
    for status in ("dead", "completed", "in_flight"):
        site.enqueue()
        claimed = site.claim()
        if status != "in_flight":
            site.finish(claimed, outcome=KILLED if status == "dead" else None)
    site.enqueue()
    site.enqueue(ready_at=instant(5_000))
    chosen = {
        "queued": Job.objects.queued(),
        "scheduled": Job.objects.scheduled(),
        "ready": Job.objects.ready(),
        "in_flight": Job.objects.in_flight(),
        "finished": Job.objects.finished(),
    }
    found = {name: {str(job.status) for job in jobs} for name, jobs in chosen.items()}
    assert found == {
        "queued": {"scheduled", "ready"},
        "scheduled": {"scheduled"},
        "ready": {"ready"},
        "in_flight": {"in_flight"},
        "finished": {"completed", "dead"},
    }
    assert {job.is_finished for job in chosen["finished"]} == {True}
    assert {job.is_finished for job in chosen["queued"] | chosen["in_flight"]} == {False}


def test_case_167_budgets_key_matches_jobs_bound_to_any_of_the_keys(site: Site) -> None:
    for key in ("emails", "stripe", "ses"):
        site.create(key, cc(5))
    emails, both, ses = (
        site.enqueue("emails"),
        site.enqueue("stripe", "emails"),
        site.enqueue("ses"),
    )
    site.enqueue()
    either = Job.objects.budgets_key("emails", "stripe")
    assert list(either) == [emails, both]
    assert either.count() == 2
    assert list(Job.objects.budgets_key("ses").ready()) == [ses]
    assert either.delete() == (2, {"django_zizq.Job": 2})
    assert JobBinding.objects.count() == 1


def test_a_filter_on_no_key_matches_nothing_and_sends_no_sql(site: Site) -> None:
    site.enqueue()
    with Statements() as statements:
        assert list(Job.objects.budgets_key()) == []
        assert Job.objects.budgets_key().count() == 0
    assert statements.sent == []


def test_a_selection_is_deleted_in_a_handful_of_statements_per_thousand(site: Site) -> None:
    site.create("a", cc(5))
    counts = []
    for jobs in (10, 900):
        site.enqueue_many(jobs, "a")
        site.dispatch(5)
        with Statements() as statements:
            Job.objects.all().delete()
        counts.append(len(statements.sent))
        assert not Job.objects.exists()
        assert site.in_use("a") == 0
    assert counts[0] == counts[1]
    assert counts[0] <= 8


def test_a_deleted_job_is_gone_with_what_belongs_to_it(site: Site) -> None:
    site.create("a", cc(5))
    job = site.enqueue("a")
    again = Job.objects.get()
    assert job.delete() == (1, {"django_zizq.Job": 1})
    assert job.pk is None
    assert again.delete() == (0, {"django_zizq.Job": 0})
    assert not JobBinding.objects.exists()


def test_it_is_called_by_its_type_and_number(site: Site) -> None:
    job = site.enqueue(type="charge")
    assert str(job) == f"charge #{job.pk}"
    assert job.status == JobStatus.READY
