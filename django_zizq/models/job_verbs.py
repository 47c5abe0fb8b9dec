"""What can be done to one job: its bindings changed, and itself moved or explained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Self

from django.core.exceptions import ObjectDoesNotExist
from django.db import router

from django_zizq.core.changes import Bind, Change, Rebind, Replace, SetCost, Unbind
from django_zizq.core.errors import (
    JobFinished,
    JobNotDead,
    JobNotFailed,
    JobNotFound,
    JobNotQueued,
)
from django_zizq.core.lifecycle import JobStatus
from django_zizq.core.policies import Binding, BudgetPolicy, as_bindings, binding_of
from django_zizq.dialect import Database, to_ms
from django_zizq.explain import explain_job
from django_zizq.explanations import JobExplanation
from django_zizq.models import steering
from django_zizq.models.rebinding import change_one
from django_zizq.models.verbs import twin, verb

if TYPE_CHECKING:
    from django.db.models import Model
else:
    Model = object


class JobVerbs(Model):
    """The verbs of a job. Each returns the job as it now stands, and joins the transaction.

    The row is read anew afterwards, so the instance shows what is stored.
    """

    status: str
    attempts: int

    @verb
    def bind_budget(
        self,
        budget: Binding | str,
        cost: int | None = None,
        *,
        create_with: BudgetPolicy | None = None,
    ) -> Self:
        """Bind the job to one more budget, at *cost* (1), and return it as it now stands.

        This and the verbs below are for scheduled and ready jobs and raise ``JobNotQueued`` for
        others and ``JobNotFound`` for one that is gone; nothing changes then. A job that may run
        now wakes the dispatchers. Raises ``BindingExists``, ``UnknownBudget``,
        ``CostExceedsCapacity``, ``InvalidBinding`` and ``BudgetLimitReached``.
        """
        return self._rebind(Bind(binding_of(budget, cost, create_with)))

    @verb
    def rebind_budget(
        self,
        budget: Binding | str,
        cost: int | None = None,
        *,
        create_with: BudgetPolicy | None = None,
    ) -> Self:
        """Bind the job to the budget at *cost* (1), whatever binding to it it has.

        Raises as :meth:`bind_budget`, but no ``BindingExists``.
        """
        return self._rebind(Rebind(binding_of(budget, cost, create_with)))

    @verb
    def set_budget_cost(self, key: str, cost: int) -> Self:
        """Change what the job pays a budget it is bound to.

        Raises ``BindingNotFound``, ``CostExceedsCapacity`` and ``InvalidBinding``.
        """
        return self._rebind(SetCost(Binding(key, cost)))

    @verb
    def unbind_budget(self, key: str) -> Self:
        """Unbind the budget from the job; succeeds where it is not bound."""
        return self._rebind(Unbind(key))

    @verb
    def unbind_all_budgets(self) -> Self:
        """Unbind every budget from the job: it is unthrottled then."""
        return self._rebind(Replace())

    @verb
    def replace_budgets(self, budgets: Iterable[Binding | str]) -> Self:
        """Bind the job to these budgets and no others.

        Raises ``UnknownBudget``, ``CostExceedsCapacity``, ``InvalidBinding`` and
        ``BudgetLimitReached``.
        """
        return self._rebind(Replace(as_bindings(budgets)))

    @verb
    def run_now(self) -> Self:
        """Make the job, which is scheduled, ready at once; succeeds where it is ready.

        Raises ``JobNotQueued`` and ``JobNotFound``.
        """
        moved = self._steer(steering.run_now)
        if not moved and self.status != JobStatus.READY:
            raise JobNotQueued(self.pk, self.status)
        return self

    @verb
    def retry_now(self) -> Self:
        """Try the job again at once: it waits for that after a failure, or is dead.

        Succeeds where it has failed and is ready already.
        Raises ``JobNotFailed``, ``JobNotFound``, and as :meth:`requeue`.
        """
        moved = self._steer(steering.retry_now)
        if not moved and not (self.status == JobStatus.READY and self.attempts):
            raise JobNotFailed(self.pk, self.status)
        return self

    @verb
    def requeue(self) -> Self:
        """Make the job, which is dead, ready again with all its retries before it.

        Its errors are kept. Raises ``JobNotDead``, ``JobNotFound``, ``UnknownBudget`` and
        ``CostExceedsCapacity`` for what it is bound to, and ``UniqueKeyHeld``.
        """
        if not self._steer(steering.requeue):
            raise JobNotDead(self.pk, self.status)
        return self

    @verb
    def kill(self, reason: str = "") -> Self:
        """Make the job dead, with *reason* on record.

        The handler of one in flight is not interrupted, but how it ends no longer counts, and its
        tokens come back now. Where dead jobs are kept for no time at all its row is gone
        afterwards. Raises ``JobFinished`` and ``JobNotFound``.
        """
        if not self._steer(partial(steering.kill, reason=reason)):
            raise JobFinished(self.pk, self.status)
        return self

    def explain(self) -> JobExplanation:
        """Say why the job is not running and when it will; see :class:`JobExplanation`.

        Raises ``JobNotFound``. Costs a probe of an index for each occupied lane, and grows with
        the jobs that share budgets with this one, up to ten thousand of them.
        """
        db = Database(self._state.db or router.db_for_read(type(self), instance=self))
        return explain_job(db, self._stored_id(), now=to_ms(db.clock()))

    abind_budget = twin(bind_budget)
    arebind_budget = twin(rebind_budget)
    aset_budget_cost = twin(set_budget_cost)
    aunbind_budget = twin(unbind_budget)
    aunbind_all_budgets = twin(unbind_all_budgets)
    areplace_budgets = twin(replace_budgets)
    arun_now = twin(run_now)
    aretry_now = twin(retry_now)
    arequeue = twin(requeue)
    akill = twin(kill)
    aexplain = twin(explain)

    def _rebind(self, change: Change) -> Self:
        db = Database(router.db_for_write(type(self), instance=self))
        change_one(db, self._stored_id(), change, now=db.clock())
        try:
            self.refresh_from_db(using=db.using)
        except ObjectDoesNotExist:  # somebody has just deleted it
            raise JobNotFound(self.pk) from None
        return self

    def _steer(self, move: Callable[..., steering.Steered]) -> bool:
        """Move the job and read it anew; False where that did not apply to it."""
        db = Database(router.db_for_write(type(self), instance=self))
        changed, refused = move(db, [self._stored_id()], now=db.clock())
        for error in refused.values():
            raise error
        try:
            self.refresh_from_db(using=db.using)
        except ObjectDoesNotExist:
            if not changed:
                raise JobNotFound(self.pk) from None
            self.status = JobStatus.DEAD
        return bool(changed)

    def _stored_id(self) -> int:
        """Return the id that the row has. Raises ``JobNotFound`` where there can be none."""
        id = self.pk
        if not isinstance(id, int) or not 0 <= id < 2**63:
            raise JobNotFound(id)
        return id
