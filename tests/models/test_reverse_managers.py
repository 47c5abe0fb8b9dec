"""The jobs of a worker or a budget are changed where the instance they were asked of lives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db.models import Model
from django.test import override_settings

from django_zizq.models import Job, Worker
from tests.core.limits import cc
from tests.spec.harness import Site

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


class Recorder:
    """A router that remembers what it was asked, and of which instance."""

    def __init__(self) -> None:
        self.writes: list[Any] = []
        self.reads: list[Any] = []

    def db_for_write(self, model: type[Model], **hints: Any) -> str:
        self.writes.append(hints.get("instance"))
        return "default"

    def db_for_read(self, model: type[Model], **hints: Any) -> str:
        self.reads.append(hints.get("instance"))
        return "default"


@pytest.fixture
def router() -> Iterator[Recorder]:
    """The router in force."""
    recorder = Recorder()
    with override_settings(DATABASE_ROUTERS=[recorder]):
        yield recorder


def stock(site: Site) -> Worker:
    site.create("stripe", cc(9))
    site.create("ses", cc(9))
    site.spend("stripe")
    site.enqueue("stripe")
    return Worker.objects.get()


@pytest.mark.parametrize(("verb", "arguments"), VERBS.items(), ids=VERBS)
def test_the_router_hears_of_the_instance_that_a_verb_was_asked_of(
    site: Site, router: Recorder, verb: str, arguments: tuple[Any, ...]
) -> None:
    worker = stock(site)
    for selected in (worker.jobs.all(), worker.jobs.filter(queue="default")):
        router.writes.clear()
        getattr(selected, verb)(*arguments)
        assert set(router.writes) == {worker}


@pytest.mark.parametrize(("verb", "arguments"), VERBS.items(), ids=VERBS)
def test_the_hints_of_a_selection_are_passed_on(
    site: Site, router: Recorder, verb: str, arguments: tuple[Any, ...]
) -> None:
    worker = stock(site)
    router.writes.clear()
    selected = type(Job.objects.all())(Job, hints={"instance": worker})
    getattr(selected, verb)(*arguments)
    assert set(router.writes) == {worker}


def test_the_selections_read_where_the_instance_lives(site: Site, router: Recorder) -> None:
    worker = stock(site)
    router.reads.clear()
    assert list(worker.jobs.parked("stripe")) == []
    assert worker.jobs.in_flight().budgets_key("stripe").count() == 1
    assert set(router.reads) == {worker}


def test_without_an_instance_there_is_no_hint(site: Site, router: Recorder) -> None:
    stock(site)
    router.writes.clear()
    assert Job.objects.ready().kill().changed == 1
    assert set(router.writes) == {None}


def test_a_database_that_was_stated_is_not_asked_about(site: Site, router: Recorder) -> None:
    worker = stock(site)
    router.writes.clear()
    assert worker.jobs.using("default").kill().changed == 1
    assert Job.objects.using("default").ready().kill().changed == 1
    assert router.writes == []


def test_only_the_jobs_of_the_instance_are_changed(site: Site) -> None:
    worker = stock(site)
    assert worker.jobs.kill().changed == 1
    assert list(Job.objects.order_by("pk").values_list("status", flat=True)) == ["dead", "ready"]
