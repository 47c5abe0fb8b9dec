"""What wakes the other dispatchers: all that could let a job of theirs run."""

from __future__ import annotations

import pytest

from django_zizq import Binding
from django_zizq.models import Job
from django_zizq.outcomes import HandBack, Outcome, Success
from tests.core.limits import cc, pm
from tests.spec.harness import BOOM, Site, Statements

pytestmark = [pytest.mark.postgresql, pytest.mark.usefixtures("announcing")]


@pytest.mark.parametrize(
    ("budgets", "outcome", "announced"),
    [
        pytest.param(["slots"], Success(), True, id="a slot is free"),
        pytest.param([], HandBack(), True, id="a job is ready again"),
        pytest.param([], BOOM, True, id="a job will be ready again"),
        pytest.param([], Success(), False, id="nobody waits for an unbound job to end"),
        pytest.param(["rate"], Success(), False, id="a rate gets nothing back"),
    ],
)
def test_the_end_of_a_job_is_announced_where_others_may_go_on_for_it(
    site: Site, budgets: list[str], outcome: Outcome, announced: bool
) -> None:
    site.create("slots", cc(1))
    site.create("rate", pm(5))
    site.enqueue(*budgets)
    claimed = site.claim()
    with Statements() as statements:
        site.finish(claimed, outcome=outcome)
    assert bool(statements.about("NOTIFY")) == announced


def test_the_deletion_of_a_parked_job_is_announced_to_those_behind_it(site: Site) -> None:
    site.create("slots", cc(3))
    site.spend("slots", 2)
    big = site.enqueue(Binding("slots", 3))
    small = site.enqueue(Binding("slots", 1))
    assert site.dispatch().claimed == []
    with Statements() as statements:
        Job.objects.get(pk=big.pk).delete()
    assert statements.about("NOTIFY")
    assert [job.id for job in site.dispatch().claimed] == [small.pk]
