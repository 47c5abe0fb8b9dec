"""Jobs in each state they can be in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_zizq import Binding
from django_zizq.models import Job
from tests.spec.harness import BOOM, KILLED, Site

DAY = timedelta(days=1)

STATES = ("scheduled", "backing off", "ready", "in_flight", "completed", "dead")


def put(site: Site, state: str, *budgets: Binding | str, **options: Any) -> Job:
    """Bring a job into that state."""
    delay = DAY if state == "scheduled" else None
    job = site.enqueue(*budgets, delay=delay, priority=0, **options)
    if state in ("backing off", "in_flight", "completed", "dead"):
        (claimed,) = site.dispatch(1).claimed
        if state != "in_flight":
            outcomes = {"backing off": BOOM, "completed": None, "dead": KILLED}
            site.finish(claimed, outcome=outcomes[state])
    job.refresh_from_db()
    return job


def put_one_of_each(site: Site, *budgets: Binding | str) -> list[Job]:
    """Bring a job into each of STATES; a ready one last, as the others pass through that."""
    order = sorted(STATES, key=lambda state: state == "ready")
    jobs = {state: put(site, state, *budgets) for state in order}
    return [jobs[state] for state in STATES]
