"""Budgets as a selection, and the verbs that create, change and delete them.

A change of policy or a deletion locks the row FOR UPDATE: it waits for every enqueue and bind that
has checked its cost against the old capacity (those hold FOR KEY SHARE), then checks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db import models, router, transaction

from django_zizq.core.errors import BudgetExists, BudgetNotFound, InvalidPolicy
from django_zizq.core.names import name_fault
from django_zizq.core.policies import BudgetPatch, BudgetPolicy
from django_zizq.dialect import Database, from_ms
from django_zizq.models.budget_rows import insert_budgets
from django_zizq.models.verbs import twin, verb
from django_zizq.wakeup import wake_dispatchers

if TYPE_CHECKING:
    from django_zizq.models.budget import Budget


class BudgetQuerySet(models.QuerySet["Budget"]):
    """Budgets, and the verbs that create and change them."""

    _db: str | None
    _hints: dict[str, Any]

    @verb
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

    @verb
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

    @verb
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

    @verb
    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete the budgets, all or none.

        Raises ``BudgetInUse`` where unfinished jobs are bound to one of them.
        """
        db = self._database()
        with transaction.atomic(using=db.using):
            budgets, ids = self.using(db.using), list[int]()
            for pk in budgets.order_by("pk").values_list("pk", flat=True):
                # One by one: whoever waits for a budget of jobs in flight is not kept waiting
                # while this waits for another one, so no cycle can form.
                for budget in budgets.filter(pk=pk).select_for_update():
                    budget.refuse_deletion_in_use()
                    ids.append(pk)
            self.model._base_manager.using(db.using).filter(pk__in=ids)._raw_delete(db.using)
        self._result_cache = None
        return len(ids), {self.model._meta.label: len(ids)}

    acreate_budget = twin(create_budget)
    aput_budget = twin(put_budget)
    aupdate_budget = twin(update_budget)

    delete.queryset_only = True  # type: ignore[attr-defined]

    def _database(self) -> Database:
        return Database(self._db or router.db_for_write(self.model, **self._hints))

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
