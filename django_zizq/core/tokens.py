"""The token arithmetic: refill, debit, credit and due times, on integers.

A time based pool counts *units* of token x milliseconds, so that the drip is exact: one token is
``duration_ms`` units, the pool gains ``allocation`` units in a millisecond and is full at
``capacity * duration_ms`` units. This is the continuous form of a token bucket.

A bucket that is full loses what drips in until somebody draws on it, and nobody is there in the
very millisecond: at 200/s with a burst of 1 a dispatcher that is 1 ms late each time would get
167/s. So what drips into a full pool is kept for who is merely late, up to ``LATE_MS`` and short of
one whole token. By it the starts in any window of length t are at most
``capacity + ceil(allocation * t / duration)``: never more than the capacity at once, and never
more than 201 in any second of that rate.

A concurrency pool has no clock: what is free is always ``allocation - in_use``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from django_zizq.core.policies import BudgetPolicy


FOREVER_MS: Final = 221_845_392_000_000
"""The first instant of the year 9000: where a pause without end ends, so that it stays a date."""


LATE_MS: Final = 100
"""A pool that has been full for longer had nobody waiting for it, and keeps nothing."""


class Wait(Enum):
    """When a cost can be paid, where that is not an instant."""

    NOW = "now"
    ON_RELEASE = "on release"
    ON_RESUME = "on resume"
    NEVER = "never"


Due = Wait | int
"""A :class:`Wait`, or the instant in milliseconds."""


@dataclass(slots=True)
class Pool:
    """The tokens of one budget at one instant.

    ``duration_ms`` is None for a concurrency limit. ``level`` is in units (see the module).
    ``in_use`` is the cost of what is in flight, whatever the strategy. ``refill`` it to *now*
    before any other call. ``level`` is what was there at ``level_at``: at the last refill, or when
    the pool became full if that was before (at most just over ``LATE_MS``).
    """

    allocation: int
    capacity: int
    duration_ms: int | None
    level: int = 0
    level_at: int = 0
    in_use: int = 0
    paused_until: int | None = None
    now: int = field(default=0, compare=False, repr=False)

    @classmethod
    def full(cls, policy: BudgetPolicy, *, now: int) -> Pool:
        """Return the pool of a new budget: full."""
        units = policy.capacity * (policy.duration_ms or 0)
        return cls(policy.allocation, policy.capacity, policy.duration_ms, units, now)

    def refill(self, *, now: int) -> None:
        """Add what dripped in since ``level_at``, up to the capacity; end a pause that is over.

        A clock that went back gives nothing, and takes nothing away: ``level_at`` stays, so the
        same time is not credited twice. If it went back by more than a whole duration the pool
        counts from *now* instead, so that no budget stalls for longer than one period.
        ``level_at`` of a concurrency limit follows the clock: should it become a rate, that
        drips from then on.
        """
        if self.paused_until is not None and self.paused_until <= now:
            self.paused_until = None
        if self.duration_ms is None:
            self.level_at = now
        elif now > self.level_at:
            self.level += self.allocation * (now - self.level_at)
            self.level_at = now
            if (over := self.level - self.capacity * self.duration_ms) > 0:
                self._stop(over)
        elif self.is_ahead(now=now):
            self.level_at = now
        self.now = now

    def is_ahead(self, *, now: int) -> bool:
        """Say whether it was counted by a clock that has been stepped back since.

        By more than a duration: then it counts from *now* again once it is stored so.
        """
        return self.duration_ms is not None and now < self.level_at - self.duration_ms

    def _stop(self, over: int) -> None:
        """Take the units *over* the capacity away, but for a part of a millisecond's drip."""
        full_for, part = divmod(over, self.allocation)
        if full_for > LATE_MS:
            full_for, part = LATE_MS + 1, 0
        self.level -= over - part
        self.level_at -= full_for

    def _drips_from(self) -> tuple[int, int]:
        """Return the level, and the instant from which it goes on if it is drawn on now.

        Of a full pool that is now, and the level has on top of it what is kept for who is late.
        """
        if self.duration_ms is None:
            return self.level, self.level_at
        over = self.level - self.capacity * self.duration_ms
        if over < 0:
            return self.level, self.level_at
        late_by = max(0, self.now - self.level_at)
        kept = 0 if late_by > LATE_MS else over + self.allocation * late_by
        return self.level - over + min(kept, self.duration_ms - 1), self.level_at + late_by

    @property
    def available(self) -> int:
        """Whole tokens that are there, never below zero. A pause does not change it."""
        if self.duration_ms is None:
            return max(0, self.allocation - self.in_use)
        return min(self.capacity, self.level // self.duration_ms)

    @property
    def is_limit(self) -> bool:
        """Whether it is a concurrency limit, which gets back what jobs have paid."""
        return self.duration_ms is None

    @property
    def is_paused_for_good(self) -> bool:
        """Whether it pays nothing until it is resumed."""
        return self.paused_until is not None and self.paused_until >= FOREVER_MS

    @property
    def next_token_at(self) -> int | None:
        """When the next token drips in, in milliseconds; None where none will."""
        if self.duration_ms is None or self.available >= self.capacity:
            return None
        due = self._tokens_due(self.available + 1)
        return None if isinstance(due, Wait) else due

    def may_lose(self, cost: int) -> bool:
        """Say whether what drips in can be lost to a full pool while jobs of *cost* wait for it.

        It is while a pause lasts, and between the whole milliseconds at which jobs start, unless
        the pool has room for a millisecond's drip on top of the cost.
        """
        if self.duration_ms is None:
            return False
        room = (self.capacity - cost + 1) * self.duration_ms - 1
        return self.paused_until is not None or room < self.allocation - 1

    def can_pay(self, cost: int) -> bool:
        """Say whether *cost* tokens can be debited now."""
        if self.paused_until is not None:
            return False
        if self.duration_ms is None:
            return self.allocation - self.in_use >= cost
        return self.level >= cost * self.duration_ms

    def debit(self, cost: int) -> None:
        """Take *cost* tokens, which ``can_pay`` has said are there."""
        self.level, self.level_at = self._drips_from()
        if self.duration_ms is not None:
            self.level -= cost * self.duration_ms
        self.in_use += cost

    def restore(self, cost: int) -> None:
        """Undo a debit of *cost* that was only tried."""
        if self.duration_ms is not None:
            self.level += cost * self.duration_ms
        self.in_use -= cost

    def credit(self, cost: int) -> None:
        """Note that a job of *cost* is no longer in flight: a concurrency limit gets it back."""
        self.in_use -= cost

    def pause(self, *, until: int) -> None:
        """Pay nothing before *until*, in milliseconds; a pause that lasts longer stays."""
        if self.paused_until is None or self.paused_until < until:
            self.paused_until = until

    def due(self, cost: int, *, ahead: int = 0) -> Due:
        """Return when *cost* can be paid if nobody else draws on the pool.

        *ahead* is the sum of the costs that are paid before it. Where a drip has to bring it, the
        instant is the first whole millisecond at which it is there, so always later than the
        refill.
        """
        if cost > self.capacity:
            return Wait.NEVER
        paid = self._tokens_due(ahead + cost)
        if self.paused_until is None or paid is Wait.ON_RELEASE:
            return paid
        if self.is_paused_for_good:
            return Wait.ON_RESUME
        return self.paused_until if isinstance(paid, Wait) else max(paid, self.paused_until)

    def _tokens_due(self, cost: int) -> Due:
        if self.duration_ms is None:
            return Wait.NOW if self.allocation - self.in_use >= cost else Wait.ON_RELEASE
        level, since = self._drips_from()
        missing = cost * self.duration_ms - level
        if missing <= 0:
            return Wait.NOW
        return since + -(-missing // self.allocation)

    def change(self, policy: BudgetPolicy) -> None:
        """Move the pool, refilled to now, under a new *policy*.

        The tokens stay, clipped to the new capacity. The part-token earned so far stays too
        unless the duration, its unit, changes. What a concurrency limit has free becomes the
        level of a rate; the other way round only what is in flight counts.
        """
        self.level, self.level_at = self._drips_from()
        duration_ms = policy.duration_ms
        if duration_ms is None:
            self.level = 0
        elif duration_ms == self.duration_ms:
            self.level = min(self.level, policy.capacity * duration_ms)
        else:
            self.level = min(self.available, policy.capacity) * duration_ms
        self.allocation = policy.allocation
        self.capacity = policy.capacity
        self.duration_ms = duration_ms
