"""The budgets: their policies, their tokens and their pauses.

Token state lives in the row, so restarts and deployments grant no fresh burst. ``in_use`` is the
cost of what is in flight for every strategy, so that switching between them is exact. A pause
without end ends in the year 9000.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.conf import settings as django_settings
from django.db import DEFAULT_DB_ALIAS, models, router
from django.db.models import Count, Max, Q
from django.utils import timezone

from django_zizq.core.errors import (
    BudgetInUse,
    BudgetNotFound,
    InvalidPause,
    PolicyStrandsJobs,
)
from django_zizq.core.lifecycle import UNFINISHED
from django_zizq.core.names import MAX_LENGTH
from django_zizq.core.policies import MAX_DURATION_MS, MAX_TOKENS, BudgetPolicy
from django_zizq.core.tokens import FOREVER_MS, Pool
from django_zizq.counting import Unfinished, unfinished
from django_zizq.dialect import Database, from_ms, to_ms
from django_zizq.explain import explain_budget
from django_zizq.explanations import BudgetExplanation
from django_zizq.models.budget_queryset import BudgetQuerySet
from django_zizq.models.budget_rows import policy_fields
from django_zizq.models.verbs import twin, verb
from django_zizq.wakeup import wake_dispatchers


class Budget(models.Model):
    """A named pool of tokens that jobs pay from before they are dispatched."""

    key = models.CharField(max_length=MAX_LENGTH, unique=True)
    allocation = models.IntegerField()
    strategy = models.CharField(
        max_length=16,
        choices=[("while_in_flight", "while in flight"), ("time_based", "time based")],
    )
    duration_ms = models.BigIntegerField(null=True, blank=True)
    burst = models.IntegerField(null=True, blank=True)
    level = models.BigIntegerField(default=0, editable=False)
    level_at = models.DateTimeField(editable=False)
    in_use = models.BigIntegerField(default=0, editable=False)
    paused_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(editable=False)
    updated_at = models.DateTimeField(editable=False)

    objects = BudgetQuerySet.as_manager()

    class Meta:
        ordering = ("key",)
        constraints = (
            models.CheckConstraint(
                condition=Q(allocation__gte=1, allocation__lte=MAX_TOKENS),
                name="zizq_allocation_in_range",
            ),
            models.CheckConstraint(
                condition=Q(burst__isnull=True) | Q(burst__gte=1, burst__lte=MAX_TOKENS),
                name="zizq_burst_in_range",
            ),
            models.CheckConstraint(
                condition=Q(
                    strategy="while_in_flight", duration_ms__isnull=True, burst__isnull=True
                )
                | Q(
                    strategy="time_based",
                    duration_ms__gte=1,
                    duration_ms__lte=MAX_DURATION_MS,
                    duration_ms__isnull=False,
                ),
                name="zizq_strategy_has_its_fields",
            ),
            models.CheckConstraint(condition=Q(level__gte=0), name="zizq_level_not_negative"),
        )

    def __str__(self) -> str:
        return self.key

    def save(
        self,
        *,
        force_insert: Any = False,
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Create the budget, or put its policy, as the verbs do and raising what they raise.

        Tokens and times are never written from an instance: while it was held others have moved
        them. They are read back instead. The key of a stored budget does not change.
        """
        verbs = Budget.objects.using(using or router.db_for_write(Budget, instance=self))
        if self._state.adding:
            stored = verbs.create_budget(self.key, self.policy)
        else:
            if not verbs.filter(pk=self.pk, key=self.key).exists():
                raise BudgetNotFound(self.key)
            stored = verbs.put_budget(self.key, self.policy)
        for field in self._meta.concrete_fields:
            setattr(self, field.attname, getattr(stored, field.attname))
        self._state.adding, self._state.db = False, stored._state.db

    @property
    def policy(self) -> BudgetPolicy:
        """The allocation and strategy."""
        return BudgetPolicy.from_fields(
            self.strategy, self.allocation, duration_ms=self.duration_ms, burst=self.burst
        )

    @property
    def capacity(self) -> int:
        """The most tokens the pool can hold: the burst where one is set, else the allocation."""
        return self.allocation if self.burst is None else self.burst

    def pool(self, *, now: datetime) -> Pool:
        """Return the tokens of this row, refilled to *now*."""
        pool = Pool(
            self.allocation,
            self.capacity,
            self.duration_ms,
            self.level,
            to_ms(self.level_at),
            self.in_use,
            None if self.paused_until is None else to_ms(self.paused_until),
        )
        pool.refill(now=to_ms(now))
        return pool

    def available(self, *, now: datetime | None = None) -> int:
        """Return the whole tokens there at *now*, by default the database's time.

        Computed from this row as it was read, so read it again for a fresh answer.
        """
        return self.pool(now=now or self._reader().clock()).available

    def next_token_at(self, *, now: datetime | None = None) -> datetime | None:
        """Return when the next token drips in; None where none will, a full pool included."""
        due = self.pool(now=now or self._reader().clock()).next_token_at
        return None if due is None else from_ms(due)

    def unfinished(self) -> Unfinished:
        """Return how many scheduled, ready and in-flight jobs are bound to it.

        Fast however many they are, and however many have finished (see ``counting``). How many
        of the ready are parked is ``Job.objects.parked(key).count()``.
        """
        return unfinished(self._reader(), self.key)

    def explain(self) -> BudgetExplanation:
        """Say how the budget stands, who waits for it and until when.

        Raises ``BudgetNotFound``.
        """
        db = self._reader()
        return explain_budget(db, self.key, now=to_ms(db.clock()))

    def is_paused(self, *, now: datetime | None = None) -> bool:
        """Return whether it pays nothing at *now*, by default the database's time."""
        return self.pool(now=now or self._reader().clock()).paused_until is not None

    @verb
    def pause(self, until: datetime | None = None) -> Budget:
        """Let the budget pay nothing before *until*, or before it is resumed; return it.

        What is bound to it waits, everything else flows, and time goes on dripping tokens into
        it. A pause under way gets this end instead. Raises ``InvalidPause`` for an end that is
        past or is not aware of its time zone as ``USE_TZ`` says, and ``BudgetNotFound``.
        """
        db = self._writer()
        if until is not None:
            self._check_end(until, now=db.clock())
        return self._set_pause(db, from_ms(FOREVER_MS) if until is None else until)

    @verb
    def resume(self) -> Budget:
        """End a pause, if there is one, and return the budget. Raises ``BudgetNotFound``."""
        return self._set_pause(self._writer(), None)

    apause = twin(pause)
    aresume = twin(resume)
    aavailable = twin(available)
    aunfinished = twin(unfinished)
    aexplain = twin(explain)

    def _check_end(self, until: datetime, *, now: datetime) -> None:
        if not isinstance(until, datetime):
            raise InvalidPause(self.key, f"until must be a datetime, not {until!r}.")
        if timezone.is_aware(until) != django_settings.USE_TZ:
            kind = "aware of its time zone" if django_settings.USE_TZ else "naive"
            raise InvalidPause(self.key, f"until must be {kind}, as USE_TZ says, not {until!r}.")
        if until <= now:
            raise InvalidPause(self.key, f"until must be in the future, not {until}.")
        if until.year >= 9000:
            raise InvalidPause(self.key, "leave until out for a pause without end.")

    def _set_pause(self, db: Database, until: datetime | None) -> Budget:
        # A dispatcher may sleep until the end of the pause that is replaced here, so both wake it.
        if not Budget.objects.using(db.using).filter(pk=self.pk).update(paused_until=until):
            raise BudgetNotFound(self.key)
        wake_dispatchers(db)
        try:
            self.refresh_from_db(using=db.using)
        except Budget.DoesNotExist:  # somebody has just deleted it
            raise BudgetNotFound(self.key) from None
        return self

    def _reader(self) -> Database:
        return Database(self._state.db or router.db_for_read(Budget, instance=self))

    def _writer(self) -> Database:
        return Database(router.db_for_write(Budget, instance=self))

    def set_policy(self, policy: BudgetPolicy) -> None:
        """Copy *policy* into the fields of the row, without saving."""
        for name, value in policy_fields(policy).items():
            setattr(self, name, value)

    def delete(
        self, using: str | None = None, keep_parents: bool = False
    ) -> tuple[int, dict[str, int]]:
        """Delete the budget.

        Raises ``BudgetInUse`` while unfinished jobs are bound to it, and ``BudgetNotFound``
        where it is already gone.
        """
        alias = using or router.db_for_write(Budget, instance=self)
        deleted = Budget.objects.using(alias).filter(pk=self.pk).delete()
        if not deleted[0]:
            raise BudgetNotFound(self.key)
        self.pk = None
        return deleted

    def refuse_deletion_in_use(self) -> None:
        """Raise ``BudgetInUse`` where unfinished jobs are bound; the row must be locked."""
        blockers = unfinished(Database(self._state.db or DEFAULT_DB_ALIAS), self.key).total
        if blockers:
            raise BudgetInUse(self.key, blockers)

    def refuse_stranding(self, policy: BudgetPolicy) -> None:
        """Raise ``PolicyStrandsJobs`` where an unfinished job costs more than *policy* can hold.

        The row must be locked, so that no enqueue slips past.
        """
        # Not from a replica, which lags behind; the index holds keys and costs.
        binding: Any = self._meta.get_field("bindings").related_model
        stranded = binding.objects.using(self._state.db).filter(
            key=self.key, cost__gt=policy.capacity, job__status__in=UNFINISHED
        )
        found = stranded.aggregate(jobs=Count("pk"), largest=Max("cost"))
        if found["jobs"]:
            raise PolicyStrandsJobs(self.key, policy.capacity, found["jobs"], found["largest"])
