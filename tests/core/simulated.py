"""A dispatcher with threads enough, simulated over ``admit`` and ``Pool`` alone.

It looks when a job ends and at the next due time, or with *look_ms* at the next multiple of that,
which makes thousands of budgets affordable: what falls due in between is seen together.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter

from django_zizq.core.admission import Admission, Candidate, admit
from django_zizq.core.policies import BudgetPolicy
from django_zizq.core.tokens import Pool
from tests.core.limits import T0, full

MANY_SLOTS = 1_000_000
_id = attrgetter("id")


class Lane:
    """A backlog of like jobs; their *ids* say where they stand among all others."""

    def __init__(self, *budgets: int, runs_ms: int, ids: Iterable[int]) -> None:
        self.budgets = budgets
        self.runs_ms = runs_ms
        self.starts: list[int] = []
        self.parked_at: int | None = None
        """Since when its head has waited with nothing ahead of it on any of its budgets."""
        self._longest_lead_ms = 0
        self._bindings = tuple((budget, 1) for budget in budgets)
        self._ids = iter(ids)
        self._next: deque[int] = deque()

    @property
    def is_empty(self) -> bool:
        return not self._ahead(1)

    def head(self, *, stamped: bool) -> Candidate:
        parked_at = self.parked_at if stamped else None
        return Candidate(self._ahead(1)[0], 0, self._bindings, parked_at)

    def fetch(self, most: int, *, stamped: bool) -> Iterator[Candidate]:
        """Return the head and those behind it, as a pass fetches them: *most* in all."""
        for number, id in enumerate(self._ahead(most), start=1):
            parked_at = self.parked_at if stamped and number == 1 else None
            yield Candidate(id, 0, self._bindings, parked_at, more=number == most)

    def start(self, *, now: int) -> None:
        """Take the head away."""
        self._next.popleft()
        self.starts.append(now)
        if self.parked_at is not None:
            self._longest_lead_ms = self.lead_ms(now)
            self.parked_at = None

    def lead_ms(self, until: int) -> int:
        """The longest that a job of several budgets waited once nothing was ahead of it."""
        waits = 0 if self.parked_at is None else until - self.parked_at
        return max(self._longest_lead_ms, waits)

    def starts_within(self, begin: int, end: int) -> int:
        return sum(begin <= start <= end for start in self.starts)

    def busy(self, until: int) -> float:
        """The share of the time from T0 in which a job of it ran, one at a time."""
        return self.ran_ms(until) / (until - T0)

    def ran_ms(self, until: int) -> int:
        """The milliseconds up to *until* in which its jobs ran, those of each added up."""
        return sum(min(self.runs_ms, until - start) for start in self.starts)

    def _ahead(self, most: int) -> list[int]:
        while len(self._next) < most:
            id = next(self._ids, None)
            if id is None:
                break
            self._next.append(id)
        return [self._next[place] for place in range(min(most, len(self._next)))]


@dataclass(slots=True)
class Site:
    """Budgets, and the lanes that draw on them, from T0 on."""

    policies: Mapping[int, BudgetPolicy]
    stamps: bool = True
    look_ms: int = 1
    now: int = T0
    lanes: list[Lane] = field(default_factory=list)
    pools: dict[int, Pool] = field(init=False)
    _heads: list[Candidate] = field(default_factory=list)
    _lane_of: dict[int, Lane] = field(default_factory=dict)
    _running: list[tuple[int, int, Lane]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pools = {key: full(policy) for key, policy in self.policies.items()}

    def add(self, *lanes: Lane) -> None:
        self.lanes += lanes
        for lane in lanes:
            self._stand(lane)

    def run(self, *, until: int) -> None:
        """Dispatch up to *until*, and not what could start at that instant."""
        while self.now < until:
            next_due = self._dispatch()
            ends = self._running[0][0] if self._running else until
            look = min(until, ends, until if next_due is None else next_due)
            self.now = min(until, T0 - (T0 - look) // self.look_ms * self.look_ms)
            while self._running and self._running[0][0] <= self.now:
                for budget in heappop(self._running)[2].budgets:
                    self.pools[budget].credit(1)

    def use(self) -> dict[int, float]:
        """The share that was taken of what each budget could give: of its time, or its tokens."""
        taken: dict[int, int] = dict.fromkeys(self.pools, 0)
        for lane in self.lanes:
            for budget in lane.budgets:
                is_rate = self.pools[budget].duration_ms is not None
                taken[budget] += len(lane.starts) if is_rate else lane.ran_ms(self.now)
        return {key: taken[key] / self._could_give(pool) for key, pool in self.pools.items()}

    def _could_give(self, pool: Pool) -> float:
        time = self.now - T0
        if pool.duration_ms is None:
            return pool.allocation * time
        return pool.capacity + pool.allocation * time / pool.duration_ms

    def _dispatch(self) -> int | None:
        for pool in self.pools.values():
            pool.refill(now=self.now)
        while (admission := self._walk()).again:
            pass
        for id in admission.to_stamp:
            lane = self._lane_of[id]
            if lane.parked_at is None:
                lane.parked_at = self.now
                self._heads[self._place(id)] = lane.head(stamped=self.stamps)
        return admission.next_due

    def _walk(self) -> Admission:
        """Walk over the heads, and behind those that can pay over as many as the tokens allow."""
        candidates: list[Candidate] = []
        lanes: dict[int, Lane] = {}
        for head in self._heads:
            tokens = min(self.pools[budget].available for budget, _ in head.bindings)
            if not tokens:
                candidates.append(head)
                continue
            lane = self._lane_of[head.id]
            fetched = list(lane.fetch(tokens + 1, stamped=self.stamps))
            candidates += fetched
            lanes |= {job.id: lane for job in fetched}
        candidates.sort(key=_id)
        admission = admit(candidates, self.pools, slots=MANY_SLOTS, now=self.now)
        moved = []
        for job in admission.taken:
            lane = lanes[job.id]
            if self._lane_of.pop(job.id, None):
                del self._heads[self._place(job.id)]
                moved.append(lane)
            lane.start(now=self.now)
            heappush(self._running, (self.now + lane.runs_ms, job.id, lane))
        for lane in moved:
            self._stand(lane)
        return admission

    def _stand(self, lane: Lane) -> None:
        if not lane.is_empty:
            head = lane.head(stamped=self.stamps)
            insort(self._heads, head, key=_id)
            self._lane_of[head.id] = lane

    def _place(self, id: int) -> int:
        return bisect_left(self._heads, id, key=_id)
