"""The walk against a slow reading of the rule "Which job goes first" in the spec."""

from copy import deepcopy
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from django_zizq.core.admission import Candidate, admit
from django_zizq.core.tokens import Pool
from tests.core.limits import T0, cc, pm, spent

BUDGETS = range(4)
MISSING = 4
EVERY_SLOT = 1_000
AGES = [0, 1_900, 2_000, 3_800, 7_499, 7_500, 7_999, 8_000, 15_500]

DOUBLINGS = [2_000 * 2**k for k in range(30)]

Pools = dict[int, Pool]


@st.composite
def _pool(draw: st.DrawFn) -> Pool:
    policy = draw(st.sampled_from([cc(1), cc(2), cc(5), pm(1), pm(2), pm(60, burst=4)]))
    pool = spent(policy, draw(st.integers(0, policy.capacity)))
    pool.refill(now=T0 + draw(st.sampled_from([0, 700, 31_000])))
    pool.level_at = T0
    if pool.duration_ms is None:
        pool.in_use += draw(st.sampled_from([0, 0, 0, 1]))
    pool.paused_until = draw(st.sampled_from([None, None, None, T0 + 5_000]))
    return pool


def _candidates(*, plain: bool) -> st.SearchStrategy[list[Candidate]]:
    """Jobs in (priority, id) order; *plain* ones are all claimable and the last of their lanes."""
    budgets = st.sampled_from([*BUDGETS] if plain else [*BUDGETS, *BUDGETS, MISSING])
    flags = st.just(False) if plain else st.sampled_from([False] * 7 + [True])
    bindings = st.dictionaries(budgets, st.sampled_from([1, 1, 1, 2, 3]), max_size=3)
    job = st.builds(
        lambda pairs, priority, age, unclaimable, more: Candidate(
            0,
            priority,
            tuple(pairs.items()),
            None if age is None or len(pairs) < 2 else T0 - age,
            claimable=not unclaimable,
            more=more,
        ),
        bindings,
        st.integers(0, 2),
        st.none() | st.sampled_from(AGES),
        flags,
        flags,
    )
    return st.lists(job, max_size=12).map(
        lambda jobs: sorted(
            (job._replace(id=id) for id, job in enumerate(jobs)),
            key=lambda job: (job.priority, job.id),
        )
    )


POOLS = st.fixed_dictionaries({budget: _pool() for budget in BUDGETS})
JOBS = _candidates(plain=False)
PLAIN_JOBS = _candidates(plain=True)


@dataclass
class Reading:
    """What the spec makes of each job, decided from what was decided of those in front."""

    pools: Pools
    slots: int
    ahead: int
    taken: list[Candidate] = field(default_factory=list)
    parked: dict[int, tuple[int, ...]] = field(default_factory=dict)
    line: list[Candidate] = field(default_factory=list)
    closed_by: dict[int, set[int]] = field(default_factory=dict)
    again: bool = False
    stopped: bool = False

    def free(self, budget: int) -> int:
        paid = sum(dict(job.bindings).get(budget, 0) for job in self.taken)
        pool = self.pools[budget]
        return 0 if pool.paused_until is not None else pool.available - paid

    def closed(self, budget: int) -> bool:
        return any(budget in budgets for budgets in self.closed_by.values())

    def short_of(self, job: Candidate) -> set[int]:
        return {budget for budget, cost in job.bindings if self.free(budget) < cost}

    def held_by(self, job: Candidate) -> set[int]:
        age = -1 if job.parked_at is None else T0 - job.parked_at
        if not any(15 * doubling <= age * 16 < 16 * doubling for doubling in DOUBLINGS):
            return set()
        budgets = {budget for budget, _ in job.bindings}
        return {b for b in budgets if not any(b in dict(other.bindings) for other in self.line)}

    def read(self, job: Candidate) -> None:
        for budget, cost in job.bindings:
            if budget not in self.pools or cost > self.pools[budget].capacity:
                return
        waits_for = tuple(
            budget
            for budget, _ in job.bindings
            if self.closed(budget) or budget in self.short_of(job)
        )
        if waits_for:
            self.parked[job.id] = waits_for
            self.closed_by[job.id] = self.short_of(job) | self.held_by(job)
            self.line.append(job)
        elif job.bindings and len(self.taken) >= self.slots:
            self.stopped = True
        elif job.claimable:
            self.taken.append(job)
        else:
            self.closed_by[job.id] = {budget for budget, _ in job.bindings}
            self.again = True

    def finish(self, jobs: list[Candidate]) -> None:
        for job in jobs:
            if len(self.taken) == self.slots + self.ahead:
                return
            self.read(job)
            if self.stopped:
                return
            if job.more and job in self.taken:
                self.again = True
                return


@settings(max_examples=250)
@given(JOBS, POOLS, st.integers(0, 6), st.integers(0, 3))
def test_the_walk_is_what_the_spec_says(
    jobs: list[Candidate], pools: Pools, slots: int, ahead: int
) -> None:
    reading = Reading(deepcopy(pools), slots, ahead)
    reading.finish(jobs)
    admission = admit(jobs, pools, slots=slots, ahead=ahead, now=T0)
    assert admission.taken == reading.taken
    assert admission.parked == reading.parked
    assert admission.again == reading.again


@given(JOBS, POOLS, st.integers(0, 6), st.integers(0, 3))
def test_no_pool_is_ever_overdrawn_and_each_start_is_paid_for(
    jobs: list[Candidate], pools: Pools, slots: int, ahead: int
) -> None:
    before = deepcopy(pools)
    admission = admit(jobs, pools, slots=slots, ahead=ahead, now=T0)
    for budget, pool in pools.items():
        paid = sum(dict(job.bindings).get(budget, 0) for job in admission.taken)
        assert paid <= before[budget].available
        assert before[budget].available - pool.available == paid
        assert pool.in_use - before[budget].in_use == paid


@given(JOBS, POOLS, st.integers(0, 6), st.integers(0, 3))
def test_bound_jobs_stay_within_the_slots_and_all_jobs_within_what_is_ahead_of_them(
    jobs: list[Candidate], pools: Pools, slots: int, ahead: int
) -> None:
    taken = admit(jobs, pools, slots=slots, ahead=ahead, now=T0).taken
    assert len(taken) <= slots + ahead
    assert all(not job.bindings for job in taken[slots:])
    assert all(job.claimable for job in taken)


@given(PLAIN_JOBS, POOLS)
def test_whoever_is_not_taken_has_a_reason(jobs: list[Candidate], pools: Pools) -> None:
    admission = admit(jobs, pools, slots=EVERY_SLOT, now=T0)
    for position, job in enumerate(jobs):
        if job in admission.taken:
            continue
        costs = dict(job.bindings)
        if any(cost > pools[budget].capacity for budget, cost in costs.items()):
            assert job.id not in admission.parked
            continue
        in_front = {budget for other in jobs[:position] for budget, _ in other.bindings}
        for budget in admission.parked[job.id]:
            assert budget in in_front or not pools[budget].can_pay(costs[budget])


@given(PLAIN_JOBS, POOLS)
def test_nobody_overtakes_on_a_budget_that_somebody_in_front_is_short_of(
    jobs: list[Candidate], pools: Pools
) -> None:
    admission = admit(jobs, pools, slots=EVERY_SLOT, now=T0)
    short: set[int] = set()
    for job in jobs:
        if job in admission.taken:
            assert not short & {budget for budget, _ in job.bindings}
        elif job.id in admission.parked:
            short |= {b for b, cost in job.bindings if not pools[b].can_pay(cost)} & {
                *admission.parked[job.id]
            }


@given(st.lists(st.integers(1, 3), max_size=12), _pool())
def test_jobs_on_one_budget_alone_start_strictly_in_order(costs: list[int], pool: Pool) -> None:
    jobs = [Candidate(id, 0, ((0, cost),)) for id, cost in enumerate(costs)]
    payable = [job for job in jobs if job.bindings[0][1] <= pool.capacity]
    taken = admit(jobs, {0: pool}, slots=EVERY_SLOT, now=T0).taken
    assert taken == payable[: len(taken)]


@given(PLAIN_JOBS, POOLS, st.integers(1, 10_000_000))
def test_nothing_could_start_before_the_next_due_time(
    jobs: list[Candidate], pools: Pools, later: int
) -> None:
    admission = admit(jobs, pools, slots=EVERY_SLOT, now=T0)
    waiting = [job for job in jobs if job not in admission.taken]
    now = T0 + later
    if admission.next_due is not None:
        assert admission.next_due > T0
        now = min(now, admission.next_due - 1)
    for pool in pools.values():
        pool.refill(now=now)
    assert admit(waiting, pools, slots=EVERY_SLOT, now=now).taken == []


@given(st.lists(st.integers(1, 3), min_size=1, max_size=8))
def test_whoever_wakes_at_the_next_due_times_starts_every_job(costs: list[int]) -> None:
    pools = {0: spent(pm(60, burst=3)), 1: spent(pm(7, burst=4))}
    waiting = [Candidate(id, 0, ((0, cost), (1, cost))) for id, cost in enumerate(costs)]
    admission = admit(waiting, pools, slots=EVERY_SLOT, now=T0)
    while admission.parked:
        assert admission.next_due is not None
        for pool in pools.values():
            pool.refill(now=admission.next_due)
        waiting = [job for job in waiting if job.id in admission.parked]
        admission = admit(waiting, pools, slots=EVERY_SLOT, now=admission.next_due)
    assert [job.id for job in admission.taken] == [job.id for job in waiting]
