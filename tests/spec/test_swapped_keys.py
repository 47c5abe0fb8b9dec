"""Budgets whose keys somebody exchanged at the database's own prompt, and how that is mended."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import F

from django_zizq import Binding, integrity
from django_zizq.integrity import Finding
from django_zizq.models import Budget, Job, JobBinding
from tests.core.limits import cc
from tests.spec.harness import Site, ids, instant
from tests.spec.stored import bound, wrong_in_use

DAY_MS = 86_400_000


def check(site: Site, *, repair: bool) -> list[Finding]:
    return list(integrity.check(site.db, repair=repair, now=instant(0)))


def rename(old: str, new: str) -> None:
    assert Budget._base_manager.filter(key=old).update(key=new) == 1


def rotate(*keys: str) -> None:
    """Give each budget the key of the next, the last that of the first."""
    rename(keys[0], "meanwhile")
    for old, new in reversed(list(zip(keys[1:], (*keys[2:], keys[0]), strict=True))):
        rename(old, new)
    rename("meanwhile", keys[1])


def stray() -> int:
    """How many bindings name another budget than they point at."""
    return JobBinding.objects.exclude(budget__key=F("key")).count()


@pytest.fixture
def stocked(site: Site) -> Site:
    """A site with three budgets."""
    for key in ("a", "b", "c"):
        site.create(key, cc(9))
    return site


@pytest.mark.parametrize("delay", [None, timedelta(days=1)], ids=["ready", "scheduled"])
@pytest.mark.parametrize("keys", [("a", "b"), ("b", "a")], ids=["in order", "in the other"])
def test_the_bindings_of_a_job_bound_to_both_are_mended(
    stocked: Site, delay: timedelta | None, keys: tuple[str, str]
) -> None:
    job = stocked.enqueue(Binding(keys[0], 2), Binding(keys[1], 3), delay=delay)
    rotate("a", "b")
    assert stray() == 2
    found = check(stocked, repair=True)
    problems = [f"its binding to '{key}' points at another budget's row" for key in keys]
    assert [finding.problem for finding in found] == problems
    assert {finding.subject for finding in found} == {f"job #{job.pk}"}
    assert all(finding.is_repaired for finding in found)
    assert (stray(), check(stocked, repair=False)) == (0, [])
    assert bound(job) == [(keys[0], 2), (keys[1], 3)]
    assert ids(stocked.dispatch(at=DAY_MS).claimed) == [job.pk]
    assert (stocked.in_use(keys[0]), stocked.in_use(keys[1])) == (2, 3)
    assert wrong_in_use() == []


def test_nothing_is_mended_unasked(stocked: Site) -> None:
    stocked.enqueue("a", "b")
    rotate("a", "b")
    assert [finding.is_repaired for finding in check(stocked, repair=False)] == [False] * 2
    assert stray() == 2


def test_three_in_a_ring_are_mended(stocked: Site) -> None:
    jobs = [stocked.enqueue("a", "b", "c"), stocked.enqueue("c", "a", "b")]
    rotate("a", "b", "c")
    assert stray() == 6
    assert all(finding.is_repaired for finding in check(stocked, repair=True))
    assert (stray(), check(stocked, repair=False)) == (0, [])
    assert [bound(job) for job in jobs] == [
        [("a", 1), ("b", 1), ("c", 1)],
        [("c", 1), ("a", 1), ("b", 1)],
    ]


def test_it_goes_on_with_the_jobs_behind(stocked: Site) -> None:
    first = stocked.enqueue("a", "b")
    only_one = stocked.enqueue("a")
    unbound = stocked.enqueue()
    last = stocked.enqueue("b", "c", "a")
    Job.objects.filter(pk=unbound.pk).update(lane=1)
    rotate("a", "b")
    found = check(stocked, repair=True)
    assert {finding.subject for finding in found} == {
        f"job #{job.pk}" for job in (first, only_one, unbound, last)
    }
    assert all(finding.is_repaired for finding in found)
    assert (stray(), check(stocked, repair=False)) == (0, [])
    assert ids(stocked.dispatch().claimed) == [first.pk, only_one.pk, unbound.pk, last.pk]
    assert wrong_in_use() == []


def test_a_binding_whose_place_is_taken_waits_until_the_other_can_be_mended(stocked: Site) -> None:
    """Both cannot point at the row that is left."""
    job = stocked.enqueue("a", "b")
    rename("a", "elsewhere")
    rename("b", "a")
    assert not all(finding.is_repaired for finding in check(stocked, repair=True))
    assert bound(job) == [("a", 1), ("b", 1)], "no binding is lost"
    stocked.create("b", cc(9))
    check(stocked, repair=True)
    assert (stray(), check(stocked, repair=False)) == (0, [])
