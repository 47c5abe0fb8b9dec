"""Section 2 of the spec, rules 2 and 3 of "Which job goes first": what a parked job closes."""

from __future__ import annotations

from django_zizq.models import Job
from django_zizq.outcomes import HandBack
from tests.core.limits import T0, cc
from tests.spec.harness import Site, ids, instant


def test_case_205_a_job_is_parked_only_on_the_budget_it_is_short_of(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", cc(5))
    site.spend("a")
    site.enqueue("a", "b", priority=0)
    on_b = site.enqueue("b", priority=9)
    assert ids(site.dispatch().claimed) == [on_b.pk]


def test_case_206_a_job_long_parked_holds_what_it_could_pay_for_a_while(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", cc(5))
    site.spend("a")
    site.enqueue("a", "b", priority=0)
    site.dispatch(at=0)
    on_b = site.enqueue("b", priority=9, at=7_600)
    held = site.dispatch(at=7_600)
    assert (held.claimed, held.next_due) == ([], T0 + 8_000)
    assert ids(site.dispatch(at=8_000).claimed) == [on_b.pk]


def test_parked_at_is_stamped_once_and_cleared_by_the_dispatch(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", cc(5))
    running = site.spend("a")
    head, follower = (site.enqueue("a", "b") for _ in range(2))
    single = site.enqueue("a")
    site.dispatch(at=1_000)
    site.dispatch(at=2_000)
    stamps = dict(Job.objects.ready().values_list("pk", "parked_at"))
    assert stamps == {head.pk: instant(1_000), follower.pk: None, single.pk: None}
    site.finish(running)
    assert ids(site.dispatch(1, at=3_000).claimed) == [head.pk]
    assert Job.objects.get(pk=head.pk).parked_at is None


def test_the_time_at_the_head_begins_when_nothing_is_ahead_on_any_of_its_budgets(
    site: Site,
) -> None:
    site.create("a", cc(1))
    site.create("b", cc(1))
    site.spend("a")
    site.spend("b")
    ahead = site.enqueue("b", queue="other", priority=0)
    both = site.enqueue("a", "b", priority=9)
    site.dispatch(at=1_000)
    assert Job.objects.get(pk=both.pk).parked_at is None
    ahead.delete()
    site.dispatch(at=2_000)
    assert Job.objects.get(pk=both.pk).parked_at == instant(2_000)


def test_a_job_handed_back_and_parked_again_is_stamped_anew(site: Site) -> None:
    site.create("a", cc(1))
    site.create("b", cc(1))
    running = site.spend("a")
    site.enqueue("a", "b")
    site.dispatch(at=1_000)
    site.finish(running)
    site.finish(site.claim(at=2_000), outcome=HandBack(), at=2_000)
    site.spend("a", at=3_000)
    site.dispatch(at=3_000)
    assert list(Job.objects.ready().values_list("parked_at", flat=True)) == [instant(3_000)]
