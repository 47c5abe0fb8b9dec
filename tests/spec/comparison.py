"""The library and the model of its spec, to which the same things are done in any order."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db.models import Model
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from django_zizq import Binding, BudgetPatch, Retention, maintenance
from django_zizq.models import Budget, Job, JobBinding, JobError, Worker
from django_zizq.outcomes import Ended
from tests.spec import reference_rows
from tests.spec.both_sides import BothSides
from tests.spec.drawing import (
    AT_ONCE,
    ENQUEUED,
    KEYS,
    PASSES,
    bindings,
    bound,
    changes,
    keys,
    outcome_of,
    policies,
    some,
    spans,
    stated,
    verbs,
)
from tests.spec.harness import Site, ids, instant
from tests.spec.reference import Refused
from tests.spec.reference_rows import NEVER, Bindings, Policy


class Comparison(BothSides):
    """What may be done to the library and to the model."""

    @initialize(
        first=st.tuples(policies, policies, policies),
        jobs=st.lists(st.fixed_dictionaries(ENQUEUED), min_size=4, max_size=8),
    )
    def begin(self, first: tuple[Policy, ...], jobs: list[dict[str, Any]]) -> None:
        tables: tuple[type[Model], ...] = (JobError, JobBinding, Job, Budget, Worker)
        for table in tables:
            table._base_manager.all()._raw_delete("default")
        self.site = Site()
        self.workers = [self.site.worker_id, self.site.start_worker("other")]
        for key, policy in zip(KEYS, first, strict=True):
            self.site.create(key, stated(policy))
            self.model.create(key, policy, now=0)
        for job in jobs:
            self.enqueue(**job)

    @rule(span=spans)
    def let_pass(self, span: int) -> None:
        self.at += span

    @rule(**ENQUEUED)
    def enqueue(
        self,
        count: int,
        bound: Bindings,
        creates: Policy | None,
        priority: int,
        queue: str,
        delay: int,
        unique: tuple[str, str] | None,
        kept: int,
    ) -> None:
        create_with = None if creates is None else stated(creates)
        kept_for = timedelta(milliseconds=kept)
        options: dict[str, Any] = (
            {} if unique is None else {"unique_key": unique[0], "unique_while": unique[1]}
        )
        holder = None if unique is None else self.model.holder(unique[0])
        creating = {} if creates is None else {key: creates for key, _ in bound}
        jobs, _ = self.both(
            lambda: self.site.enqueue_many(
                count,
                *(Binding(key, cost, create_with=create_with) for key, cost in bound),
                at=self.at,
                priority=priority,
                queue=queue,
                delay=timedelta(milliseconds=delay),
                backoff=AT_ONCE,
                retention=Retention(completed=kept_for, dead=kept_for),
                retry_limit=1,
                **options,
            ),
            lambda: self.model.resolve(bound, creating, now=self.at),
        )
        for n, job in enumerate(jobs or ()):
            assert job.is_duplicate == (unique is not None and (holder is not None or n > 0))
            if job.is_duplicate:
                assert job.pk == (holder.id if holder else jobs[0].pk)
                continue
            self.known.append(job.pk)
            self.model.jobs[job.pk] = reference_rows.Job(
                id=job.pk,
                priority=priority,
                queue=queue,
                bindings=bound,
                status="scheduled" if delay else "ready",
                ready_at=self.at + delay,
                kept=kept,
                retry_limit=1,
                unique=unique,
            )
        self.compare()

    # More than once: hypothesis leaves out some of the rules in each of its examples.
    @rule(**ENQUEUED)
    def enqueue_too(self, **options: Any) -> None:
        self.enqueue(**options)

    @rule(**ENQUEUED, **PASSES)
    def enqueue_and_run_pass(self, **options: Any) -> None:
        self.enqueue(**{name: options[name] for name in ENQUEUED})
        self.run_pass(**{name: options[name] for name in PASSES})

    @rule(span=spans, **PASSES)
    def run_pass_later(self, span: int, **options: Any) -> None:
        self.let_pass(span)
        self.run_pass(**options)

    @rule(**PASSES)
    def run_pass_too(self, **options: Any) -> None:
        self.run_pass(**options)

    @rule(**PASSES)
    def run_pass(
        self,
        worker: int,
        slots: int,
        queues: str,
        ends: list[tuple[int, tuple[str, str, int]]],
        forgets: bool,
    ) -> None:
        """Settle some of what is held, at times once more, and dispatch."""
        held = self.held
        ending = [(held[n % len(held)], outcome) for n, outcome in ends if held]
        # One claim of a job at a time: the dispatcher holds no two.
        ending = list({job.id: (job, outcome) for job, outcome in ending}.values())
        result = self.site.dispatch(
            slots,
            at=self.at,
            queues=queues,
            ended=[Ended(job, outcome_of(outcome)) for job, outcome in ending],
            worker_id=self.workers[worker],
        )
        moved = {
            job.id
            for job, outcome in sorted(ending, key=lambda one: one[0].id)
            if self.model.settle(job.id, job.claim, outcome, now=self.at)
        }
        assert result.settled.moved == moved
        assert result.settled.refused == {job.id for job, _ in ending} - moved
        self.model.promote(now=self.at)
        self._dispatch(result, slots, queues, self.workers[worker])
        if forgets:
            ended = [job for job, _ in ending]
            self.held = [job for job in self.held if job not in ended]
        self.held += result.claimed
        self.compare()

    def _dispatch(self, result: Any, slots: int, queues: str, worker: int) -> None:
        found, claimed = self.model.select(slots, queues, now=self.at), ids(result.claimed)
        assert claimed == found.taken[: len(claimed)]
        stamped = found.stamped
        if len(claimed) < len(found.taken):
            # More of a lane than was fetched: the pass goes on at once, and has not looked further.
            assert claimed
            assert result.again
            found = self.model.select(len(claimed), queues, now=self.at)
            stamped = found.stamped
        for id in claimed:
            self.model.claim(id, worker)
        for id in stamped:
            self.model.jobs[id].parked_at = self.at

    @rule(key=keys, policy=policies, verb=st.sampled_from(["create", "put", "put", "patch"]))
    def state_policy(self, key: str, policy: Policy, verb: str) -> None:
        at = instant(self.at)
        if verb == "create":
            real = lambda: self.site.create(key, stated(policy), at=self.at)  # noqa: E731
            model = lambda: self.model.create(key, policy, now=self.at)  # noqa: E731
        elif verb == "put":
            real = lambda: self.site.put(key, stated(policy), at=self.at)  # noqa: E731
            model = lambda: self.model.put(key, policy, now=self.at)  # noqa: E731
        else:
            patch = BudgetPatch().allocation(policy.allocation)
            real = lambda: Budget.objects.update_budget(key, patch, now=at)  # noqa: E731
            model = lambda: self._patch(key, policy.allocation)  # noqa: E731
        self.both(real, model)
        self.compare()

    def _patch(self, key: str, allocation: int) -> None:
        if key not in self.model.budgets:
            raise Refused("BudgetNotFound")
        was = self.model.budgets[key].policy
        self.model.change(key, Policy(allocation, was.duration, was.burst), now=self.at)

    @rule(key=keys, pauses=st.booleans())
    def pause_or_resume(self, key: str, pauses: bool) -> None:
        for budget in Budget.objects.filter(key=key):
            budget.pause() if pauses else budget.resume()
            self.model.pause(key, NEVER if pauses else None)
        self.compare()

    @rule(key=keys)
    def delete_budget(self, key: str) -> None:
        for budget in Budget.objects.filter(key=key):
            self.both(budget.delete, lambda: self.model.delete_budget(key))
        self.compare()

    @rule(which=some, change=changes, binding=bound, others=bindings, many=st.booleans())
    def rebind(
        self,
        which: list[int],
        change: str,
        binding: tuple[str, int],
        others: Bindings,
        many: bool,
    ) -> None:
        if not self.known:
            return
        chosen = self.pick(which)
        if change == "replace" and many:
            others = []  # over a selection there is only clearing
        target: Any = Job.objects.filter(pk__in=chosen) if many else Job(pk=chosen[0])
        real = {
            "bind": lambda: target.bind_budget(*binding),
            "rebind": lambda: target.rebind_budget(*binding),
            "set cost": lambda: target.set_budget_cost(*binding),
            "unbind": lambda: target.unbind_budget(binding[0]),
            "replace": lambda: (
                target.clear_budgets()
                if many
                else target.replace_budgets([Binding(*pair) for pair in others])
            ),
        }[change]
        if many:
            change_, expected = self.both(
                real, lambda: self.model.rebind_many(chosen, change, binding, others)
            )
            if expected is not None:
                assert (change_.changed, change_.blocked) == expected
        else:
            self.both(real, lambda: self.model.rebind(chosen[0], change, binding, others))
        self.compare()

    @rule(which=some, verb=verbs, many=st.booleans())
    def steer(self, which: list[int], verb: str, many: bool) -> None:
        if not self.known:
            return
        chosen = self.pick(which)
        if many:
            done, expected = self.both(
                getattr(Job.objects.filter(pk__in=chosen), verb),
                lambda: self.model.steer_many(chosen, verb),
            )
            assert (done.changed, done.blocked) == expected
        else:
            self.both(getattr(Job(pk=chosen[0]), verb), lambda: self.model.steer(chosen[0], verb))
        self.compare()

    @rule(which=some)
    def delete(self, which: list[int]) -> None:
        if self.known:
            chosen = self.pick(which)
            deleted = Job.objects.filter(pk__in=chosen).delete()[0]
            assert deleted == self.model.delete(chosen)
            self.compare()

    @rule(number=st.integers(0, 1))
    def lose_a_worker(self, number: int) -> None:
        lost, other = self.workers[number], self.workers[1 - number]
        maintenance.beat(self.site.db, other, now=instant(self.at))
        maintenance.beat(self.site.db, lost, now=instant(self.at) - timedelta(hours=1))
        assert self.site.rescue(at=self.at) == self.model.lose(lost, now=self.at)
        self.workers[number] = self.site.start_worker(at=self.at)
        self.compare()

    @rule()
    def purge(self) -> None:
        assert self.site.purge(at=self.at) == self.model.purge(now=self.at)
        self.compare()
