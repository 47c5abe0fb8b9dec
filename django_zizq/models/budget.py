"""The budgets: their policies, their tokens, and the verbs that change them.

Token state lives in the row, so restarts and deployments grant no fresh burst. A change of policy
or a deletion locks the row FOR UPDATE: it waits for every enqueue that has checked its cost against
the old capacity (those hold FOR KEY SHARE), then checks again. ``in_use`` is the cost of what is in
flight for every strategy, so that switching between them is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models, router, transaction
from django.db.models import Count, Max, Q

from django_zizq.core.errors import (
    BudgetExists,
    BudgetInUse,
    BudgetNotFound,
    InvalidPolicy,
    PolicyStrandsJobs,
)
from django_zizq.core.lifecycle import UNFINISHED
from django_zizq.core.names import MAX_LENGTH, name_fault
from django_zizq.core.policies import MAX_DURATION_MS, MAX_TOKENS, BudgetPatch, BudgetPolicy
from django_zizq.core.tokens import Pool
from django_zizq.dialect import Database, from_ms, to_ms
from django_zizq.models.budget_rows import insert_budgets, policy_fields
from django_zizq.wakeup import wake_dispatchers

if TYPE_CHECKING:
    from django_zizq.models.binding import JobBinding


class BudgetQuerySet(models.QuerySet["Budget"]):
    """Budgets, and the verbs that create and change them."""

    _db: str | None

    def create_budget(
        self, key: str, policy: BudgetPolicy, *, now: datetime | None = None
    ) -> Budget:
        """Create the budget *key*, full.

        Raises ``BudgetExists``, leaving the stored policy alone, so that every instance of an
        application may declare its budgets when it starts; of two racing calls one succeeds.
        Raises ``BudgetLimitReached`` at the cap and ``InvalidPolicy`` for a bad key.
        """
        db = self._database()
        with transaction.atomic(using=db.using):
            if not _insert(db, key, policy, now):
                raise BudgetExists(key)
            return self.using(db.using).get(key=key)

    def put_budget(self, key: str, policy: BudgetPolicy, *, now: datetime | None = None) -> Budget:
        """Create the budget *key*, or replace its policy, keeping its tokens and ``created_at``.

        Raises ``PolicyStrandsJobs`` as :meth:`update_budget`, and as :meth:`create_budget` where
        it creates.
        """
        db = self._database()
        while True:
            with transaction.atomic(using=db.using):
                try:
                    return self._change(db, key, lambda _: policy, now)
                except BudgetNotFound:
                    if _insert(db, key, policy, now):
                        return self.using(db.using).get(key=key)
                # Somebody has just created it. Whoever has it locked may wait for the lock that
                # creating takes, so that one is given up before this waits for theirs.
                transaction.set_rollback(True, using=db.using)

    def update_budget(self, key: str, patch: BudgetPatch, *, now: datetime | None = None) -> Budget:
        """Merge *patch* into the policy of the budget *key*.

        Tokens earned so far are settled at the old rate first. Raises ``BudgetNotFound``,
        ``InvalidPolicy``, and ``PolicyStrandsJobs`` where an unfinished job could never pay again;
        then nothing is changed. Waits for transactions that enqueued on the budget and are open.
        """
        db = self._database()
        with transaction.atomic(using=db.using):
            return self._change(db, key, patch.apply, now)

    def bulk_create(self, objs: Iterable[Budget], *args: Any, **kwargs: Any) -> list[Budget]:
        """Create budgets as :meth:`create_budget` does, all or none; other arguments do nothing."""
        budgets = list(objs)
        with transaction.atomic(using=self._database().using):
            for budget in budgets:
                budget.save(using=self._database().using)
        return budgets

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the budgets, all or none.

        Raises ``BudgetInUse`` where unfinished jobs are bound to one of them.
        """
        db = self._database()
        with transaction.atomic(using=db.using):
            locked = list(self.using(db.using).order_by("pk").select_for_update())
            for budget in locked:
                budget.refuse_deletion_in_use()
            ids = [budget.pk for budget in locked]
            self.model._base_manager.using(db.using).filter(pk__in=ids)._raw_delete(db.using)
        self._result_cache = None
        return len(locked), {self.model._meta.label: len(locked)}

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def _database(self) -> Database:
        return Database(self._db or router.db_for_write(self.model))

    def _change(
        self,
        db: Database,
        key: str,
        change: Callable[[BudgetPolicy], BudgetPolicy],
        now: datetime | None,
    ) -> Budget:
        if name_fault(key):
            raise BudgetNotFound(key)
        try:
            budget = self.using(db.using).select_for_update().get(key=key)
        except self.model.DoesNotExist:
            raise BudgetNotFound(key) from None
        policy = change(budget.policy)
        budget.refuse_stranding(policy)
        now = db.clock() if now is None else now
        pool = budget.pool(now=now)
        pool.change(policy)
        budget.set_policy(policy)
        budget.level, budget.level_at, budget.updated_at = pool.level, from_ms(pool.level_at), now
        models.Model.save(budget, using=db.using)
        wake_dispatchers(db)
        return budget


def _insert(db: Database, key: str, policy: BudgetPolicy, now: datetime | None) -> bool:
    if fault := name_fault(key):
        raise InvalidPolicy(f"A budget's key {fault}.")
    return bool(insert_budgets(db, {key: policy}, now=db.clock() if now is None else now))


class Budget(models.Model):
    """A named pool of tokens that jobs pay from before they are dispatched."""

    key = models.CharField(max_length=MAX_LENGTH, unique=True)
    allocation = models.PositiveIntegerField()
    strategy = models.CharField(
        max_length=16,
        choices=[("while_in_flight", "while in flight"), ("time_based", "time based")],
    )
    duration_ms = models.PositiveBigIntegerField(null=True, blank=True)
    burst = models.PositiveIntegerField(null=True, blank=True)
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
        if now is None:
            now = Database(self._state.db or router.db_for_read(Budget)).clock()
        return self.pool(now=now).available

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
        if blockers := self._unfinished().count():
            raise BudgetInUse(self.key, blockers)

    def refuse_stranding(self, policy: BudgetPolicy) -> None:
        """Raise ``PolicyStrandsJobs`` where an unfinished job costs more than *policy* can hold.

        The row must be locked, so that no enqueue slips past.
        """
        stranded = self._unfinished().filter(cost__gt=policy.capacity)
        found = stranded.aggregate(jobs=Count("pk"), largest=Max("cost"))
        if found["jobs"]:
            raise PolicyStrandsJobs(self.key, policy.capacity, found["jobs"], found["largest"])

    def _unfinished(self) -> models.QuerySet[JobBinding]:
        bindings = self.bindings.using(self._state.db)  # not a replica that lags behind
        return bindings.filter(job__status__in=UNFINISHED)
