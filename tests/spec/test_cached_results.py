"""A selection that was read before a verb is read anew after it."""

from __future__ import annotations

from typing import Any

import pytest

from django_zizq.models import Job
from django_zizq.models.job_queryset import JobQuerySet
from tests.core.limits import cc
from tests.spec.harness import Site
from tests.spec.states import put, put_one_of_each

MOVES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "ready": ("kill", ()),
    "scheduled": ("run_now", ()),
    "backing off": ("retry_now", ()),
    "dead": ("requeue", ()),
    "in_flight": ("kill", ("enough",)),
    "completed": ("delete", ()),
}


def of(state: str) -> JobQuerySet:
    return Job.objects.filter(status="scheduled" if state == "backing off" else state)


@pytest.mark.parametrize(("state", "move"), MOVES.items(), ids=MOVES)
@pytest.mark.parametrize("batch_size", [None, 1])
def test_what_a_verb_has_moved_away_is_gone_from_the_selection(
    site: Site, state: str, move: tuple[str, tuple[Any, ...]], batch_size: int | None
) -> None:
    put(site, state)
    selected = of(state)
    assert len(selected) == 1
    verb, arguments = move
    getattr(selected, verb)(*arguments, batch_size=batch_size)
    assert len(selected) == 0


def test_what_a_verb_has_changed_is_shown_by_the_selection(site: Site) -> None:
    put_one_of_each(site)
    selected = Job.objects.all()
    assert {job.status for job in selected} > {"ready", "dead"}
    selected.kill()
    assert {job.status for job in selected} == {"dead", "completed"}


def test_a_change_of_bindings_drops_what_was_read_as_well(site: Site) -> None:
    site.create("stripe", cc(5))
    site.create("ses", cc(5))
    put(site, "ready", "stripe")
    on_stripe, on_ses = Job.objects.budgets_key("stripe"), Job.objects.budgets_key("ses")
    costly = Job.objects.filter(bindings__cost=2).prefetch_related("bindings")
    with_bindings = Job.objects.prefetch_related("bindings")
    assert (len(on_stripe), len(on_ses), len(costly), len(with_bindings)) == (1, 0, 0, 1)
    with_bindings.rebind_budget("stripe", 2)
    assert with_bindings[0].budgets[0].cost == 2
    on_ses.bind_budget("stripe")
    costly.set_budget_cost("stripe", 2)
    assert len(costly) == 1
    on_stripe.unbind_budget("stripe")
    assert len(on_stripe) == 0
    costly.clear_budgets()
    assert len(costly) == 0


def test_a_refused_verb_drops_it_too_or_leaves_it_true(site: Site) -> None:
    put(site, "ready")
    selected = Job.objects.ready()
    assert len(selected) == 1
    with pytest.raises(TypeError):
        selected.kill(dryrun=True)  # type: ignore[call-arg]
    assert len(selected) == 1
