"""What a caller gets wrong is said at once, and nothing is changed: misspelt keywords and such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from django_zizq.models import Job
from tests.core.limits import cc
from tests.spec.bulk import state
from tests.spec.harness import Site, Statements
from tests.spec.states import put_one_of_each
from tests.spec.stored import writes

VERBS: dict[str, tuple[Any, ...]] = {
    "bind_budget": ("ses",),
    "rebind_budget": ("stripe", 2),
    "set_budget_cost": ("stripe", 3),
    "unbind_budget": ("stripe",),
    "clear_budgets": (),
    "run_now": (),
    "retry_now": (),
    "requeue": (),
    "kill": (),
    "delete": (),
}
"""Every verb over a selection, with arguments by which it would change something."""

every_verb = pytest.mark.parametrize(("verb", "arguments"), VERBS.items(), ids=VERBS)

NOTHING = {"all": False, "none": True}
whatever_is_selected = pytest.mark.parametrize("nothing", NOTHING.values(), ids=NOTHING)


@pytest.fixture
def stocked(site: Site) -> Site:
    """A site with two budgets and a job of every status."""
    site.create("stripe", cc(100))
    site.create("ses", cc(100))
    put_one_of_each(site, "stripe")
    return site


def refuses(error: type[Exception], words: str, call: Callable[[], Any]) -> None:
    """Expect the error, and that the rows are as they were."""
    before = state()
    with Statements() as statements, pytest.raises(error, match=words):
        call()
    assert writes(statements) == []
    assert state() == before


@every_verb
@whatever_is_selected
@pytest.mark.parametrize("keyword", ["dryrun", "batchsize", "on_progress", "using"])
def test_an_unknown_keyword_is_refused_by_its_name(
    stocked: Site, verb: str, arguments: tuple[Any, ...], nothing: bool, keyword: str
) -> None:
    jobs = Job.objects.none() if nothing else Job.objects.all()
    refuses(TypeError, keyword, lambda: getattr(jobs, verb)(*arguments, **{keyword: 1}))


@every_verb
@whatever_is_selected
@pytest.mark.parametrize("size", [0, -1, True, False, 1.0, "1", [1]], ids=repr)
def test_a_batch_size_is_a_whole_number_of_at_least_1(
    stocked: Site, verb: str, arguments: tuple[Any, ...], nothing: bool, size: Any
) -> None:
    jobs = Job.objects.none() if nothing else Job.objects.all()
    refuses(
        ValueError, "batch_size must be", lambda: getattr(jobs, verb)(*arguments, batch_size=size)
    )


@every_verb
def test_no_batch_size_is_stated_by_none(
    stocked: Site, verb: str, arguments: tuple[Any, ...]
) -> None:
    before = state()
    getattr(Job.objects.all(), verb)(*arguments, batch_size=None, dry_run=False, progress=None)
    assert state() != before


NO_JOBS: dict[str, Callable[[], Any]] = {
    "values": lambda: Job.objects.values(),
    "values of a column": lambda: Job.objects.values("queue"),
    "values_list": lambda: Job.objects.values_list("pk"),
    "flat": lambda: Job.objects.values_list("pk", flat=True),
    "named": lambda: Job.objects.values_list("pk", named=True),
    "dates": lambda: Job.objects.dates("created_at", "day"),
    "datetimes": lambda: Job.objects.datetimes("created_at", "hour"),
    "filtered": lambda: Job.objects.values("pk").filter(status="ready"),
    "a union": lambda: (
        Job.objects.order_by()
        .values("pk")
        .union(Job.objects.order_by().filter(status="dead").values("pk"))
    ),
}


@every_verb
@pytest.mark.parametrize("rows", NO_JOBS.values(), ids=NO_JOBS)
def test_a_selection_of_anything_but_jobs_is_refused(
    stocked: Site, verb: str, arguments: tuple[Any, ...], rows: Callable[[], Any]
) -> None:
    refuses(TypeError, "values", lambda: getattr(rows(), verb)(*arguments))


@pytest.mark.parametrize("reason", [None, 5, b"x", ["x"]], ids=repr)
@pytest.mark.parametrize("bulk", [False, True], ids=["single", "bulk"])
def test_a_reason_is_a_string(stocked: Site, reason: Any, bulk: bool) -> None:
    jobs: Any = Job.objects.all() if bulk else Job.objects.ready().get()
    refuses(TypeError, "reason", lambda: jobs.kill(reason))


UNHEARD_OF = {"NUL": "a\0b", "a lone surrogate": "\ud800", "comma": "a,b", "empty": ""}


@pytest.mark.parametrize("key", UNHEARD_OF.values(), ids=UNHEARD_OF)
@pytest.mark.parametrize("select", ["parked", "budgets_key"])
def test_a_key_that_no_budget_can_have_selects_nothing(
    stocked: Site, select: str, key: str
) -> None:
    assert list(getattr(Job.objects, select)(key)) == []
    assert getattr(Job.objects, select)(key).kill().changed == 0


@pytest.mark.parametrize("key", UNHEARD_OF.values(), ids=UNHEARD_OF)
def test_beside_such_a_key_the_others_still_count(site: Site, key: str) -> None:
    site.create("stripe", cc(1))
    site.spend("stripe")
    waiting = site.enqueue("stripe")
    assert list(Job.objects.parked(key, "stripe")) == [waiting]
    assert list(Job.objects.ready().budgets_key("stripe", key)) == [waiting]


@pytest.mark.parametrize("key", [["stripe"], None, 5, b"stripe", ("stripe",)], ids=repr)
@pytest.mark.parametrize("select", ["parked", "budgets_key"])
def test_a_key_that_is_no_string_is_refused(stocked: Site, select: str, key: Any) -> None:
    refuses(TypeError, "key", lambda: getattr(Job.objects, select)(key))
    refuses(TypeError, "key", lambda: getattr(Job.objects, select)("stripe", key))
