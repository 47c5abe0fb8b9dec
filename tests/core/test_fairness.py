"""What the walk gives whom over time: a simulation over ``admit`` and ``Pool`` alone."""

from itertools import count

import pytest

from tests.core.limits import T0, cc, per
from tests.core.simulated import Lane, Site

SECOND = 1_000

A, B = 1, 2
PHASES = range(0, 10_000, 370)


class Rivals:
    """Case 207: endless jobs on A alone and on B alone, and after a while J on both, before them.

    *phase_ms* shifts the instants at which A drips against those at which jobs on B end.
    """

    def __init__(self, *, phase_ms: int, stamps: bool = True) -> None:
        self.site = Site({A: per(1, 10 * SECOND, burst=1), B: cc(1)}, stamps=stamps)
        self.site.pools[A].level = phase_ms
        self.on_a = Lane(A, runs_ms=1, ids=count(1, 2))
        self.on_b = Lane(B, runs_ms=SECOND, ids=count(2, 2))
        self.site.add(self.on_a, self.on_b)

    def wait_of_j(self, *, arrives_at: int, patience_ms: int) -> int | None:
        """Return how long J waited at the head of its lane; None if in vain."""
        self.site.run(until=arrives_at)
        job = Lane(A, B, runs_ms=SECOND, ids=[0])
        self.site.add(job)
        while not job.starts and self.site.now < arrives_at + patience_ms:
            self.site.run(until=self.site.now + SECOND)
        return job.starts[0] - arrives_at if job.starts else None


@pytest.mark.parametrize("after_ms", [0, 1, 333, 777, 5_003, 13_011])
def test_case_207_a_job_on_two_saturated_budgets_is_not_starved(after_ms: int) -> None:
    """J starts within 320 s; those on A or B alone lose at most an eighth, what J takes included.

    One of a handful is more than an eighth, so the start that J takes is allowed in any case.
    """
    arrives_at = T0 + after_ms
    for phase_ms in PHASES:
        rivals = Rivals(phase_ms=phase_ms)
        wait = rivals.wait_of_j(arrives_at=arrives_at, patience_ms=320 * SECOND)
        assert wait is not None
        started_at = arrives_at + wait

        alone = Rivals(phase_ms=phase_ms)
        alone.site.run(until=started_at + 1)
        for lane, undisturbed in ((rivals.on_a, alone.on_a), (rivals.on_b, alone.on_b)):
            would = undisturbed.starts_within(arrives_at, started_at)
            lost = would - lane.starts_within(arrives_at, started_at)
            assert lost <= max(1, would / 8)


def test_the_time_a_job_waits_behind_others_does_not_thin_out_its_hold_windows() -> None:
    """With 820 jobs ahead of it on A, J still starts within 320 s of the last of them."""
    site = Site({A: per(1, 10 * SECOND, burst=1), B: cc(1)})
    ahead = Lane(A, runs_ms=1, ids=iter(range(820)))
    job = Lane(A, B, runs_ms=SECOND, ids=[1_000])
    rivals = (Lane(A, runs_ms=1, ids=count(2_000, 2)), Lane(B, runs_ms=SECOND, ids=count(2_001, 2)))
    site.add(ahead, job, *rivals)
    site.run(until=T0 + 8_190 * SECOND + 1)
    assert len(ahead.starts) == 820
    site.run(until=ahead.starts[-1] + 320 * SECOND)
    assert job.starts


def test_case_207_without_hold_windows_it_would_wait_for_ever() -> None:
    rivals = Rivals(phase_ms=500, stamps=False)
    assert rivals.wait_of_j(arrives_at=T0 + 1, patience_ms=3_600 * SECOND) is None


RATE, TENANTS = 0, range(1, 51)


@pytest.mark.parametrize(
    ("stride", "ids_on_the_rate"),
    [
        pytest.param(1, (10**9, 1), id="all tenants' jobs are enqueued first"),
        pytest.param(2, (1, 2), id="the jobs are enqueued in turn"),
    ],
)
def test_case_216_fifty_tenants_and_their_shared_rate_are_all_kept_busy(
    stride: int, ids_on_the_rate: tuple[int, int]
) -> None:
    """Fifty cc(1) of 10 s jobs that draw on 10/s too, and a backlog on that rate alone."""
    until = T0 + 600 * SECOND
    site = Site({RATE: per(10, SECOND), **{tenant: cc(1) for tenant in TENANTS}})
    tenants = [
        Lane(
            RATE,
            tenant,
            runs_ms=10 * SECOND,
            ids=count(stride * tenant, stride * len(TENANTS)),
        )
        for tenant in TENANTS
    ]
    on_the_rate = Lane(RATE, runs_ms=1, ids=count(*ids_on_the_rate))
    site.add(*tenants, on_the_rate)
    site.run(until=until)

    assert min(tenant.busy(until) for tenant in tenants) >= 0.95
    starts = sum(len(lane.starts) for lane in [*tenants, on_the_rate])
    assert 0.95 * 10 * 600 <= starts <= 10 * 600 + 10
