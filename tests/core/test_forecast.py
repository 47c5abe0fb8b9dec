"""The forecast against a slow simulation: at every event the whole queue is walked by the rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_zizq.core.admission import Candidate
from django_zizq.core.forecast import forecast, walk_lanes
from django_zizq.core.tokens import FOREVER_MS, LATE_MS, Pool, Wait
from tests.core.limits import T0, cc, full, per, pm, spent

Costs = dict[int, int]


@dataclass
class Waiting:
    id: int
    priority: int
    costs: Costs
    type: str = ""
    parked_at: int | None = None


@dataclass
class Queue:
    """Ready jobs and rate budgets, as section 2 of the spec reads; fractions of tokens, no pools.

    Jobs of one type that draw on the same budgets stand in one lane: nobody behind the first of
    them that must wait is looked at.
    """

    waiting: list[Waiting]
    rates: Mapping[int, tuple[int, int, int]]
    """Tokens, milliseconds and capacity."""
    units: dict[int, int]
    """Tokens times the milliseconds of the rate."""
    paused: Mapping[int, int]
    end: int
    now: int = T0
    starts: dict[int, int] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    """What has dripped in since the budget was full."""

    def run(self) -> dict[int, int]:
        """Return when each job starts."""
        while self.now <= self.end and self.waiting:
            while self._pass():
                pass
            step = min(self._events(), default=self.end + 1) - self.now
            for budget, (tokens, duration, capacity) in self.rates.items():
                gained = self.units[budget] + self.over.get(budget, 0) + tokens * step
                self.units[budget] = min(capacity * duration, gained)
                self.over[budget] = gained - self.units[budget]
            self.now += step
        return self.starts

    def _events(self) -> Iterator[int]:
        """Every instant at which a token drips in anywhere, a window opens or shuts, a pause ends.

        They are found one by one, whether somebody waits for them or not.
        """
        for budget, (tokens, duration, capacity) in self.rates.items():
            if self.units[budget] < capacity * duration:
                missing = duration - self.units[budget] % duration
                yield self.now + -(-missing // tokens)
        yield from (end for end in self.paused.values() if end > self.now)
        for job in self.waiting:
            for window in windows(job.parked_at):
                yield from (edge for edge in window if edge > self.now)

    def _pass(self) -> bool:
        """Walk all jobs once; False where none could start."""
        shut: set[tuple[str, frozenset[int]]] = set()
        seen: set[int] = set()
        closed: set[int] = set()
        in_line: set[int] = set()
        started = len(self.starts)
        for job in sorted(self.waiting, key=lambda job: (job.priority, job.id)):
            drawn = frozenset(job.costs)
            if (job.type, drawn) in shut:
                continue
            short = {budget for budget, cost in job.costs.items() if not self._has(budget, cost)}
            if short | (closed & drawn):
                shut.add((job.type, drawn))
                if job.parked_at is None and len(drawn) > 1 and not seen & drawn:
                    job.parked_at = self.now
                if any(low <= self.now < high for low, high in windows(job.parked_at)):
                    closed |= drawn - in_line
                closed |= short
                in_line |= drawn
            else:
                self._take(job)
            seen |= drawn
        return len(self.starts) > started

    def _take(self, job: Waiting) -> None:
        self.waiting = [other for other in self.waiting if other is not job]
        self.starts[job.id] = self.now
        for budget, cost in job.costs.items():
            tokens, duration, _ = self.rates[budget]
            over = self.over.pop(budget, 0)
            kept = min(over, duration - 1) if over // tokens <= LATE_MS else 0
            self.units[budget] += kept - cost * duration

    def _has(self, budget: int, cost: int) -> bool:
        is_paused = self.paused.get(budget, 0) > self.now
        return not is_paused and self.units[budget] >= cost * self.rates[budget][1]


def windows(parked_at: int | None) -> Iterator[tuple[int, int]]:
    """The last eighths of the doublings of the age: 1.875-2 s, 3.75-4 s and so on."""
    if parked_at is not None:
        for doubling in (2_000 * 2**k for k in range(8)):
            yield parked_at + doubling * 15 // 16, parked_at + doubling


class Stepped(Queue):
    """The same, a millisecond at a time."""

    def _events(self) -> Iterator[int]:
        yield self.now + 1


@dataclass
class Drawn:
    """The same jobs and rates for both."""

    jobs: list[Waiting]
    pools: dict[int, Pool]

    @property
    def candidates(self) -> list[Candidate]:
        return [
            Candidate(job.id, job.priority, tuple(job.costs.items()), job.parked_at)
            for job in self.jobs
        ]

    def foretold(self) -> dict[int, int]:
        """When each job starts by the forecast."""
        names = sorted({(job.type, *sorted(job.costs)) for job in self.jobs})
        lanes = {job.id: names.index((job.type, *sorted(job.costs))) for job in self.jobs}
        told = {}
        for job in self.candidates:
            due = forecast(job.id, self.candidates, self.pools, lanes=lanes, now=T0)
            assert due is Wait.NOW or isinstance(due, int)
            told[job.id] = T0 if due is Wait.NOW else due
        return told

    def queue(self, kind: type[Queue], *, end: int) -> Queue:
        return kind(
            [replace(job) for job in self.jobs],
            {b: (p.allocation, p.duration_ms or 0, p.capacity) for b, p in self.pools.items()},
            {b: p.level for b, p in self.pools.items()},
            {b: p.paused_until for b, p in self.pools.items() if p.paused_until is not None},
            end=end,
        )


@st.composite
def queues(draw: st.DrawFn, durations: list[int]) -> Drawn:
    pools = {}
    for budget in range(draw(st.integers(1, 3))):
        burst = draw(st.none() | st.integers(1, 6))
        pool = full(per(draw(st.integers(1, 12)), draw(st.sampled_from(durations)), burst))
        pool.level = draw(st.just(0) | st.integers(0, pool.level))
        pool.paused_until = draw(st.sampled_from([None] * 7 + [T0 + 1, T0 + 150, T0 + 1_950]))
        pools[budget] = pool
    keys = st.lists(st.sampled_from(sorted(pools)), min_size=1, max_size=3, unique=True)
    ages = st.sampled_from([None, None, 0, 1_700, 1_874, 1_900, 3_000, 7_600])
    jobs = []
    for id in range(draw(st.integers(1, 9))):
        costs = {b: draw(st.integers(1, min(5, pools[b].capacity))) for b in draw(keys)}
        age = draw(ages) if len(costs) > 1 else None
        parked_at = None if age is None else T0 - age
        type = draw(st.sampled_from("xxy"))
        jobs.append(Waiting(id, draw(st.integers(0, 2)), costs, type, parked_at))
    return Drawn(sorted(jobs, key=lambda job: (job.priority, job.id)), pools)


@settings(max_examples=150)
@given(queues([7, 100, 333, 1_000, 4_500, 10_000]))
def test_each_job_starts_when_the_forecast_says(drawn: Drawn) -> None:
    starts = drawn.queue(Queue, end=T0 + 9_000).run()
    assert {id: due for id, due in drawn.foretold().items() if due <= T0 + 9_000} == starts


@settings(max_examples=40)
@given(queues([1, 2, 7, 50, 200]))
def test_so_it_is_where_every_millisecond_is_looked_at(drawn: Drawn) -> None:
    starts = drawn.queue(Stepped, end=T0 + 400).run()
    assert {id: due for id, due in drawn.foretold().items() if due <= T0 + 400} == starts


@given(queues([100, 1_000]))
def test_it_changes_neither_the_jobs_nor_the_pools(drawn: Drawn) -> None:
    before = drawn.candidates, {budget: replace(pool) for budget, pool in drawn.pools.items()}
    drawn.foretold()
    assert (drawn.candidates, drawn.pools) == before


def one_lane(*costs: int, budget: int = 0) -> tuple[list[Candidate], dict[int, int]]:
    jobs = [Candidate(id, 0, ((budget, cost),)) for id, cost in enumerate(costs)]
    return jobs, dict.fromkeys(range(len(costs)), budget)


def test_a_job_that_can_pay_starts_now() -> None:
    jobs, lanes = one_lane(2, 3)
    assert forecast(1, jobs, {0: full(cc(5))}, lanes=lanes, now=T0) is Wait.NOW
    assert forecast(1, jobs, {0: full(pm(5))}, lanes=lanes, now=T0) is Wait.NOW


def test_a_job_that_waits_for_others_to_finish_starts_on_their_release() -> None:
    jobs, lanes = one_lane(2, 3, 1)
    pools = {0: full(cc(5))}
    assert forecast(2, jobs, pools, lanes=lanes, now=T0) is Wait.ON_RELEASE


def test_a_job_behind_one_that_waits_for_a_pause_without_end_starts_on_its_release() -> None:
    jobs, lanes = one_lane(1, 1)
    pools = {0: replace(full(pm(5)), paused_until=FOREVER_MS)}
    assert forecast(1, jobs, pools, lanes=lanes, now=T0) is Wait.ON_RELEASE


def test_each_pays_in_turn() -> None:
    jobs, lanes = one_lane(2, 3, 1)
    pools = {0: spent(pm(6))}
    dues = [forecast(job.id, jobs, pools, lanes=lanes, now=T0) for job in jobs]
    assert dues == [T0 + 20_000, T0 + 50_000, T0 + 60_000]


def test_a_job_that_can_never_pay_does_not_keep_others_on_other_lanes() -> None:
    jobs = [
        Candidate(0, 0, ((0, 9),)),
        Candidate(1, 0, ((0, 1), (1, 1))),
        Candidate(2, 0, ((7, 1),)),
    ]
    lanes = {0: 0, 1: 1, 2: 2}
    pools = {0: full(cc(5)), 1: spent(pm(6))}
    assert forecast(1, jobs, pools, lanes=lanes, now=T0) == T0 + 10_000


def test_what_is_too_far_off_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_zizq.core.forecast.MOST_LOOKS", 10)
    jobs, lanes = one_lane(*[1] * 20)
    pools = {0: spent(pm(60))}
    assert forecast(0, jobs, pools, lanes=lanes, now=T0) == T0 + 1_000
    assert forecast(19, jobs, pools, lanes=lanes, now=T0) is None


def test_a_job_that_begins_to_wait_is_stamped_then_and_holds_its_budgets_in_its_windows() -> None:
    jobs = [Candidate(0, 0, ((0, 1), (1, 1))), Candidate(1, 0, ((1, 1),))]
    pools = {0: spent(per(1, 10_000)), 1: spent(per(1, 1_900))}
    assert forecast(1, jobs, pools, lanes={0: 0, 1: 1}, now=T0) == T0 + 2_000
    assert forecast(0, jobs, pools, lanes={0: 0, 1: 1}, now=T0) == T0 + 10_000


def test_one_walk_goes_on_behind_what_it_takes() -> None:
    """Job 0 is not short of budget 0 when it is looked at, so it closes that to nobody."""
    jobs = [
        Candidate(0, 0, ((0, 3), (1, 1))),
        Candidate(1, 1, ((0, 2),)),
        Candidate(2, 2, ((0, 1), (2, 1))),
        Candidate(3, 3, ((0, 2),)),
    ]
    pools = {0: full(per(3, 3_000)), 1: spent(per(1, 9_000)), 2: full(pm(5))}
    lanes = {0: 0, 1: 1, 2: 2, 3: 1}
    assert forecast(2, jobs, pools, lanes=lanes, now=T0) is Wait.NOW
    taken = walk_lanes(jobs, pools, lanes=lanes, now=T0).taken
    assert [job.id for job in taken] == [1, 2]
    assert pools[0].available == 3
