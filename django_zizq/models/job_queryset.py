"""Jobs as a selection: the words to select them with, and the verbs over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from asgiref.sync import sync_to_async
from django.core.exceptions import EmptyResultSet
from django.db import models, router

from django_zizq.core.changes import (
    Bind,
    BudgetChange,
    Change,
    JobChange,
    Rebind,
    Replace,
    SetCost,
    Unbind,
)
from django_zizq.core.errors import BudgetNotFound, JobNotWritable
from django_zizq.core.lifecycle import QUEUED, TERMINAL, JobStatus
from django_zizq.core.names import name_fault
from django_zizq.core.policies import Binding, BudgetPolicy, binding_of
from django_zizq.dialect import Database, to_ms
from django_zizq.models import steering
from django_zizq.models.batches import How, Progress, check_how, in_transactions
from django_zizq.models.budget_rows import budget_ids
from django_zizq.models.rebinding import change_many
from django_zizq.models.verbs import twin, verb
from django_zizq.parking import survey
from django_zizq.transitions import delete_jobs

if TYPE_CHECKING:
    from django_zizq.models.job import Job

T = TypeVar("T")


class JobQuerySet(models.QuerySet["Job"]):
    """Jobs, selected by status and budget; every method composes with any filter.

    The verbs take the ids of the selection first and then go by these, so a job enqueued
    meanwhile is left alone. An unfiltered selection is every job; one that is empty by its own
    words, such as ``filter(pk__in=[])``, sends no SQL.

    What the verbs share is :class:`How`. They lock jobs in id order, then budgets, so they wait
    for dispatchers and for each other but never deadlock, and they send a handful of statements
    for each thousand jobs.
    """

    _db: str | None
    _fields: Any
    _hints: dict[str, Any]

    def queued(self) -> Self:
        """Select what is scheduled or ready."""
        return self.filter(status__in=QUEUED)

    def scheduled(self) -> Self:
        """Select what is to be ready later."""
        return self.filter(status=JobStatus.SCHEDULED)

    def ready(self) -> Self:
        """Select what may be dispatched, parked jobs included."""
        return self.filter(status=JobStatus.READY)

    def in_flight(self) -> Self:
        """Select what a worker is running."""
        return self.filter(status=JobStatus.IN_FLIGHT)

    def finished(self) -> Self:
        """Select what is completed or dead."""
        return self.filter(status__in=TERMINAL)

    def dead(self) -> Self:
        """Select what failed for good."""
        return self.filter(status=JobStatus.DEAD)

    def parked(self, *keys: str) -> Self:
        """Select the ready jobs that their budgets hold back: any budget, or one of *keys*.

        Which lanes those are is found by this call, as a dispatcher would at this moment; the
        selection then follows the jobs in them. Costs one probe of an index for each lane.
        """
        db = Database(self.db)
        found = survey(db, now=to_ms(db.clock()))
        of = budget_ids(db, _possible(keys)) if keys else None
        return self.ready().filter(lane__in=found.parked_lanes(of))

    def budgets_key(self, *keys: str) -> Self:
        """Select the jobs bound to any of the budgets *keys*; no key selects nothing."""
        if not (possible := _possible(keys)):
            return self.none()
        binding: Any = self.model._meta.get_field("bindings").related_model
        return self.filter(pk__in=binding.objects.filter(key__in=possible).values("job_id"))

    @verb
    def bind_budget(
        self,
        budget: Binding | str,
        cost: int | None = None,
        *,
        create_with: BudgetPolicy | None = None,
        **how: Unpack[How],
    ) -> BudgetChange:
        """Bind the budget to the queued jobs that are not bound to it yet, at *cost* (1).

        *create_with* creates it where it is missing, even if no job is selected.
        Raises ``UnknownBudget``, ``CostExceedsCapacity``, ``InvalidBinding`` and
        ``BudgetLimitReached``; then nothing changes.
        """
        return self._change(Bind(binding_of(budget, cost, create_with)), how)

    @verb
    def rebind_budget(
        self,
        budget: Binding | str,
        cost: int | None = None,
        *,
        create_with: BudgetPolicy | None = None,
        **how: Unpack[How],
    ) -> BudgetChange:
        """Bind the budget to the queued jobs at *cost* (1), whatever binding to it they have.

        Raises as :meth:`bind_budget`.
        """
        return self._change(Rebind(binding_of(budget, cost, create_with)), how)

    @verb
    def set_budget_cost(self, key: str, cost: int, **how: Unpack[How]) -> BudgetChange:
        """Change what the queued jobs bound to the budget pay it.

        Raises ``UnknownBudget``, ``CostExceedsCapacity`` and ``InvalidBinding``.
        """
        return self._change(SetCost(Binding(key, cost)), how)

    @verb
    def unbind_budget(self, key: str, **how: Unpack[How]) -> BudgetChange:
        """Unbind the budget from the queued jobs that are bound to it.

        Raises ``BudgetNotFound`` where there is neither such a budget nor a job bound to it.
        """
        change = self._change(Unbind(key), how)
        did_nothing = change == BudgetChange() and not self._matches_nothing()
        if did_nothing and not budget_ids(self._writer(), [key]):
            raise BudgetNotFound(key)
        return change

    @verb
    def clear_budgets(self, **how: Unpack[How]) -> BudgetChange:
        """Unbind every budget from the queued jobs: they are unthrottled then."""
        return self._change(Replace(), how)

    @verb
    def run_now(self, **how: Unpack[How]) -> JobChange:
        """Make the scheduled jobs ready at once, also those that wait to be tried again."""
        return self._steer(steering.run_now, how)

    @verb
    def retry_now(self, **how: Unpack[How]) -> JobChange:
        """Try again at once what has failed: run what waits for that, requeue what is dead.

        Jobs that were only scheduled for later are left alone.
        """
        return self._steer(steering.retry_now, how)

    @verb
    def requeue(self, **how: Unpack[How]) -> JobChange:
        """Make the dead jobs ready again, with all their retries before them."""
        return self._steer(steering.requeue, how)

    @verb
    def kill(self, reason: str = "", **how: Unpack[How]) -> JobChange:
        """Make the unfinished jobs dead, with *reason* on record.

        The handler of one in flight is not interrupted, but how it ends no longer counts, and its
        tokens come back now.
        """
        return self._steer(partial(steering.kill, reason=reason), how)

    @verb
    def delete(self, **how: Unpack[How]) -> tuple[int, dict[str, int]]:
        """Delete the jobs, whatever their status, all or none.

        Tokens of those in flight come back; their late acknowledgements are refused.
        """

        def work(db: Database, job_ids: Sequence[int], advance: Progress) -> int:
            deleted = delete_jobs(db, job_ids)
            advance(len(job_ids))
            return deleted

        deleted = sum(self._carry_out(work, how))
        return deleted, {self.model._meta.label: deleted}

    async def adelete(self, **how: Unpack[How]) -> tuple[int, dict[str, int]]:
        """Call :meth:`delete` from async code."""
        return await sync_to_async(self.delete)(**how)

    def bulk_create(self, *args: Any, **kwargs: Any) -> list[Job]:
        """Refuse, with ``JobNotWritable``: jobs are enqueued."""
        raise JobNotWritable(None)

    abind_budget = twin(bind_budget)
    arebind_budget = twin(rebind_budget)
    aset_budget_cost = twin(set_budget_cost)
    aunbind_budget = twin(unbind_budget)
    aclear_budgets = twin(clear_budgets)
    arun_now = twin(run_now)
    aretry_now = twin(retry_now)
    arequeue = twin(requeue)
    akill = twin(kill)

    delete.queryset_only = adelete.queryset_only = True  # type: ignore[attr-defined]

    def _change(self, change: Change, how: How) -> BudgetChange:
        write = not how.get("dry_run")

        def work(db: Database, job_ids: Sequence[int], advance: Progress) -> BudgetChange:
            return change_many(db, job_ids, change, write=write, advance=advance, now=db.clock())

        parts = self._carry_out(work, how)
        return BudgetChange(
            sum(part.changed for part in parts), [id for part in parts for id in part.blocked]
        )

    def _steer(self, move: Callable[..., steering.Steered], how: How) -> JobChange:
        def work(db: Database, job_ids: Sequence[int], advance: Progress) -> steering.Steered:
            moved = move(db, job_ids, now=db.clock())
            advance(len(job_ids))
            return moved

        parts = self._carry_out(work, how)
        reasons = {id: error for _, refused in parts for id, error in refused.items()}
        return JobChange(sum(changed for changed, _ in parts), list(reasons), reasons)

    def _carry_out(
        self, work: Callable[[Database, Sequence[int], Progress], T], how: How
    ) -> list[T]:
        """Do *work* on the ids of the selection; on nothing where it is empty by its own words."""
        check_how(how)
        if self._fields is not None:
            raise TypeError("Jobs cannot be changed after .values() or .values_list().")
        if self._matches_nothing():
            return []
        db = self._writer()
        try:
            return in_transactions(db, self._ids(db), partial(work, db), how)
        finally:
            self._result_cache = None

    def _writer(self) -> Database:
        return Database(self._db or router.db_for_write(self.model, **self._hints))

    def _ids(self, db: Database) -> list[int]:
        """Return the ids of the selection as they rise, each once."""
        selected = self.using(db.using)
        if not (selected.query.is_sliced or selected.query.distinct_fields):
            selected = selected.order_by()
        return sorted(set(selected.values_list("pk", flat=True)))

    def _matches_nothing(self) -> bool:
        """Say whether the selection is empty by its own words, without asking the database."""
        try:
            self.query.get_compiler(self.db).as_sql()
        except EmptyResultSet:
            return True
        return False


def _possible(keys: Sequence[object]) -> list[str]:
    """Return those of *keys* that a budget can have. Raises ``TypeError`` for what is no string."""
    possible = []
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"The key of a budget is a string, not {key!r}; pass several as *keys.")
        if name_fault(key) is None:
            possible.append(key)
    return possible
