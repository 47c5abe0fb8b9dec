"""The pool against a slow model in fractions that was written from the spec alone."""

from copy import copy
from datetime import timedelta
from fractions import Fraction
from math import ceil, floor

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from django_zizq.core.policies import (
    MAX_DURATION_MS,
    MAX_TOKENS,
    BudgetPolicy,
    TimeBased,
    WhileInFlight,
)
from django_zizq.core.tokens import LATE_MS, Pool, Wait
from tests.core.limits import T0, full, per, spent

INT64 = 2**63


def rates(most: int = 50, longest_ms: int = 10_000) -> st.SearchStrategy[BudgetPolicy]:
    return st.builds(
        per,
        st.integers(1, most),
        st.integers(1, longest_ms),
        st.none() | st.integers(1, most),
    )


EXTREME_RATES = st.builds(
    per,
    st.sampled_from([1, 2, 999_983, MAX_TOKENS]),
    st.sampled_from([1, 2, 999_999_937, MAX_DURATION_MS - 1, MAX_DURATION_MS]),
    st.sampled_from([None, 1, 999_983, MAX_TOKENS]),
)
POLICIES = rates() | st.builds(BudgetPolicy, st.integers(1, 50), st.just(WhileInFlight()))


class Model:
    """What the spec says of one budget, in exact fractions of a token."""

    def __init__(self, policy: BudgetPolicy) -> None:
        self.policy = policy
        self.dripped = Fraction(policy.capacity)
        self.running: list[int] = []
        self.counted_to = self.now = T0

    def move(self, now: int) -> None:
        self.now = now
        strategy = self.policy.strategy
        if isinstance(strategy, WhileInFlight):
            self.counted_to = now
        elif now > self.counted_to:
            elapsed = timedelta(milliseconds=now - self.counted_to)
            periods = Fraction(elapsed // timedelta.resolution) / (
                strategy.duration // timedelta.resolution
            )
            self.dripped += self.policy.allocation * periods
            self.counted_to = now
            self.stop()
        elif self.counted_to - now > strategy.duration // timedelta(milliseconds=1):
            self.counted_to = now

    @property
    def a_millisecond(self) -> Fraction:
        return Fraction(self.policy.allocation, self.policy.duration_ms or 1)

    def stop(self) -> None:
        """Keep of what is too much when it dripped in: full since when, up to just too late."""
        over = self.dripped - self.policy.capacity
        if over > 0:
            full_for = min(floor(over / self.a_millisecond), LATE_MS + 1)
            part = over % self.a_millisecond if full_for <= LATE_MS else Fraction(0)
            self.dripped = self.policy.capacity + part
            self.counted_to -= full_for

    def draw(self) -> None:
        """Add what is kept for who is late, less than a token, to a budget that is drawn on."""
        over = self.dripped - self.policy.capacity
        if isinstance(self.policy.strategy, TimeBased) and over >= 0:
            late_by = max(0, self.now - self.counted_to)
            over += late_by * self.a_millisecond
            most = 1 - Fraction(1, self.policy.duration_ms or 1)
            kept = min(over, most) if late_by <= LATE_MS else Fraction(0)
            self.dripped = self.policy.capacity + kept
            self.counted_to += late_by

    @property
    def tokens(self) -> Fraction:
        if isinstance(self.policy.strategy, TimeBased):
            return min(self.dripped, Fraction(self.policy.capacity))
        return Fraction(max(0, self.policy.allocation - sum(self.running)))

    def start(self, cost: int) -> bool:
        if self.tokens < cost:
            return False
        if isinstance(self.policy.strategy, TimeBased):
            self.draw()
            self.dripped -= cost
        self.running.append(cost)
        return True

    def put(self, policy: BudgetPolicy) -> None:
        self.draw()
        kept = self.dripped if isinstance(self.policy.strategy, TimeBased) else self.tokens
        if self.policy.duration_ms != policy.duration_ms:
            kept = Fraction(floor(self.tokens))
        self.dripped = min(kept, Fraction(policy.capacity))
        self.policy = policy


class PoolFollowsTheModel(RuleBasedStateMachine):
    """Any sequence of starts, ends, changes of policy and of the clock."""

    @initialize(policy=POLICIES)
    def create(self, policy: BudgetPolicy) -> None:
        self.model = Model(policy)
        self.pool = full(policy)

    @rule(ms=st.integers(0, 20_000) | st.integers(-20_000, -1))
    def wait(self, ms: int) -> None:
        now = self.model.now + ms
        self.model.move(now)
        self.pool.refill(now=now)

    @rule(cost=st.integers(1, 50))
    def start(self, cost: int) -> None:
        payable = self.pool.can_pay(cost)
        if payable:
            self.pool.debit(cost)
        assert payable == self.model.start(cost)

    @precondition(lambda self: self.model.running)
    @rule(which=st.integers(0))
    def end(self, which: int) -> None:
        running = self.model.running
        self.pool.credit(running.pop(which % len(running)))

    @rule(policy=POLICIES)
    def put(self, policy: BudgetPolicy) -> None:
        self.model.put(policy)
        self.pool.change(policy)

    @rule(allocation=st.integers(1, 50))
    def put_another_allocation(self, allocation: int) -> None:
        self.put(BudgetPolicy(allocation, self.model.policy.strategy))

    @invariant()
    def the_tokens_are_those_of_the_model(self) -> None:
        assert self.pool.available == floor(self.model.tokens)
        assert self.pool.in_use == sum(self.model.running)
        if self.pool.duration_ms is not None:
            assert Fraction(self.pool.level, self.pool.duration_ms) == self.model.dripped

    @invariant()
    def a_pool_is_never_below_zero_nor_above_its_capacity(self) -> None:
        assert 0 <= self.pool.available <= self.pool.capacity
        assert self.pool.level >= 0


TestPoolFollowsTheModel = PoolFollowsTheModel.TestCase
TestPoolFollowsTheModel.settings = settings(max_examples=60, stateful_step_count=25)


@given(rates(), st.lists(st.integers(0, 5_000)))
def test_a_refill_in_pieces_equals_a_refill_at_once(policy: BudgetPolicy, gaps: list[int]) -> None:
    pieces, once = spent(policy), spent(policy)
    now = T0
    for gap in gaps:
        now += gap
        pieces.refill(now=now)
    once.refill(now=now)
    assert pieces == once


def assert_no_window_holds_too_many(policy: BudgetPolicy, starts: list[tuple[int, int]]) -> None:
    assert policy.duration_ms is not None
    for first, (begin, _) in enumerate(starts):
        total = 0
        for end, cost in starts[first:]:
            total += cost
            dripped = Fraction(policy.allocation * (end - begin), policy.duration_ms)
            assert total <= policy.capacity + ceil(dripped)
            if begin == end:
                assert total <= policy.capacity


def starts_of(policy: BudgetPolicy, tries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (instant, cost) of each start where *tries* are gaps and what is then wanted."""
    pool, now, starts = full(policy), T0, []
    for gap, cost in tries:
        now += gap
        pool.refill(now=now)
        if pool.can_pay(cost):
            pool.debit(cost)
            starts.append((now, cost))
    return starts


@given(rates(), st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 50)), max_size=40))
def test_starts_in_any_window_stay_within_capacity_and_drip(
    policy: BudgetPolicy, tries: list[tuple[int, int]]
) -> None:
    assert_no_window_holds_too_many(policy, starts_of(policy, tries))


@given(rates(), st.lists(st.integers(0, 3_000), min_size=1, max_size=30))
def test_even_the_greediest_consumer_stays_within_them(
    policy: BudgetPolicy, gaps: list[int]
) -> None:
    pool, now, starts = full(policy), T0, []
    for gap in gaps:
        now += gap
        pool.refill(now=now)
        starts.append((now, pool.available))
        pool.debit(pool.available)
    assert_no_window_holds_too_many(policy, starts)


@given(rates(), st.integers(1, 50))
def test_whoever_comes_when_tokens_fall_due_gets_the_whole_rate(
    policy: BudgetPolicy, cost: int
) -> None:
    """Where the pool has room for what drips in while the clock rounds up to a millisecond.

    For less than a token there always is.
    """
    assert policy.duration_ms is not None
    assume((policy.capacity - cost + 1) * policy.duration_ms > policy.allocation - 1)
    assume(cost <= policy.capacity)
    pool, rounds = spent(policy), 20
    for _ in range(rounds):
        due = pool.due(cost)
        if isinstance(due, int):
            pool.refill(now=due)
        assert pool.can_pay(cost)
        pool.debit(cost)
    assert pool.level_at - T0 == ceil(
        Fraction(cost * rounds * policy.duration_ms, policy.allocation)
    )


@given(
    policy=POLICIES | EXTREME_RATES,
    spend=st.integers(1, MAX_TOKENS),
    idle=st.integers(0, 10_000),
    cost=st.integers(1, MAX_TOKENS),
)
def test_a_due_time_is_exact(policy: BudgetPolicy, spend: int, idle: int, cost: int) -> None:
    pool = spent(policy, min(spend, policy.capacity))
    pool.refill(now=T0 + idle)
    due = pool.due(cost)
    assert (due is Wait.NEVER) == (cost > policy.capacity)
    assert (due is Wait.NOW) == pool.can_pay(cost)
    if isinstance(due, int):
        early, on_time = copy(pool), copy(pool)
        early.refill(now=due - 1)
        on_time.refill(now=due)
        assert T0 + idle < due
        assert not early.can_pay(cost)
        assert on_time.can_pay(cost)


@given(
    policy=EXTREME_RATES,
    before=EXTREME_RATES,
    costs=st.lists(st.integers(1, MAX_TOKENS), max_size=5),
    idle=st.integers(0, 2 * MAX_DURATION_MS),
)
def test_a_million_tokens_in_a_hundred_years_fit_a_signed_64_bit_column(
    policy: BudgetPolicy, before: BudgetPolicy, costs: list[int], idle: int
) -> None:
    pool, model = full(before), Model(before)
    pool.change(policy)
    model.put(policy)
    for now in (T0, T0 + idle):
        pool.refill(now=now)
        model.move(now)
        for cost in costs:
            if pool.can_pay(cost):
                pool.debit(cost)
                assert model.start(cost)
        assert 0 <= pool.level < INT64
        assert pool.available == floor(model.tokens)


def test_the_largest_pool_of_all_fits_a_signed_64_bit_column() -> None:
    largest = per(MAX_TOKENS, MAX_DURATION_MS)
    assert INT64 // 3 < Pool.full(largest, now=T0).level < INT64
