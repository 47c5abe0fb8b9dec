"""Verbs on budgets that race each other: what may come out of it, by counts."""

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest
from django.test import override_settings
from django.utils import timezone

from django_zizq import (
    Binding,
    BudgetExists,
    BudgetInUse,
    BudgetLimitReached,
    BudgetNotFound,
    BudgetPatch,
    CostExceedsCapacity,
    PolicyStrandsJobs,
    UnknownBudget,
)
from django_zizq.dispatch import Pass
from django_zizq.models import Budget, Job, JobBinding
from tests.concurrency.racing import ROUNDS, Verb, add, at_most, binding_verbs, kind, passing, race
from tests.concurrency.stored import in_use, limit
from tests.concurrency.takers import Taker
from tests.concurrency.threads import (
    background,
    before_statements,
)
from tests.concurrency.waiting import DEADLINE_S

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sound"),
]


def test_of_two_racing_creations_one_succeeds() -> None:
    for turn in range(ROUNDS):
        create = partial(Budget.objects.create_budget, f"b{turn}")
        results = race(partial(create, at_most(1)), partial(create, at_most(2)))
        (created,) = [result for result in results if isinstance(result, Budget)]
        (refused,) = [result for result in results if not isinstance(result, Budget)]
        assert isinstance(refused, BudgetExists), refused
        assert Budget.objects.get(key=f"b{turn}").allocation == created.allocation


def test_racing_enqueues_and_binds_create_one_budget_and_bind_all() -> None:
    for turn in range(ROUNDS):
        job = add()
        binding = Binding(f"b{turn}", create_with=at_most(1))
        verb = binding_verbs(job, binding)[turn % 5]
        results = race(partial(add, binding), partial(add, binding), verb)
        assert not [result for result in results if isinstance(result, Exception)], results
        assert Budget.objects.get(key=f"b{turn}").bindings.count() == 3
    assert Budget.objects.count() == ROUNDS


def test_racing_creators_of_every_kind_stop_exactly_at_the_cap() -> None:
    for turn in range(ROUNDS // 3):
        cap = Budget.objects.count() + 3
        jobs = [add() for _ in range(3)]

        def new(name: str, turn: int = turn) -> Binding:
            return Binding(f"{name}-{turn}", create_with=at_most(1))

        creators: list[Verb] = [
            partial(add, new("enqueue")),
            partial(jobs[0].bind_budget, new("bind")),
            partial(jobs[1].replace_budgets, [new("replace")]),
            partial(Job.objects.filter(pk=jobs[2].pk).rebind_budget, new("rebind")),
            partial(Budget.objects.put_budget, new("put").key, at_most(1)),
            partial(Budget.objects.create_budget, new("create").key, at_most(1)),
            Budget(key=f"save-{turn}", allocation=1, strategy="while_in_flight").save,
        ]
        with override_settings(ZIZQ={"MAX_BUDGETS": cap}):
            results = race(*creators)
        errors = [result for result in results if isinstance(result, Exception)]
        assert {type(error) for error in errors} == {BudgetLimitReached}, errors
        assert len(errors) == len(creators) - 3
        assert Budget.objects.count() == cap
    keys = set(Budget.objects.values_list("key", flat=True))
    assert set(JobBinding.objects.values_list("key", flat=True)) <= keys


def test_a_bind_that_races_a_deletion_leaves_no_binding_to_nothing() -> None:
    seen: Counter[str] = Counter()
    for turn in range(ROUNDS * 2):
        job, budget = add(), limit(f"b{turn}", 1)
        verb = binding_verbs(job, Binding(budget.key))[turn % 5]
        bound, deleted = race(verb, budget.delete)
        if isinstance(bound, UnknownBudget):
            assert isinstance(deleted, tuple), deleted
            assert job.budgets == []
        else:
            assert not isinstance(bound, Exception), bound
            assert isinstance(deleted, BudgetInUse), deleted
            assert Budget.objects.filter(bindings__job=job, key=f"b{turn}").exists()
        seen[kind(deleted)] += 1
    print(dict(seen))


def test_a_bind_that_may_create_survives_a_racing_deletion() -> None:
    for turn in range(ROUNDS):
        job, budget = add(), limit(f"b{turn}", 1)
        binding = Binding(budget.key, create_with=at_most(1))
        bound, _ = race(binding_verbs(job, binding)[turn % 5], budget.delete)
        assert not isinstance(bound, Exception), bound
        assert Budget.objects.filter(bindings__job=job, key=binding.key).exists()


def test_a_bind_that_races_a_shrink_strands_no_job() -> None:
    seen: Counter[str] = Counter()
    for turn in range(ROUNDS * 2):
        key = limit(f"b{turn}", 5).key
        job = add()
        costly = Binding(key, 4)
        verbs = binding_verbs(job, costly)
        if turn % 7 > 4:
            job = add(key)
            same = Job.objects.filter(pk=job.pk)
            verbs += [partial(job.set_budget_cost, key, 4), partial(same.set_budget_cost, key, 4)]
        shrink = partial(Budget.objects.update_budget, key, BudgetPatch().allocation(2))
        bound, shrunk = race(verbs[turn % 7], shrink)
        if isinstance(bound, CostExceedsCapacity):
            assert isinstance(shrunk, Budget), shrunk
        else:
            assert not isinstance(bound, Exception), bound
            assert isinstance(shrunk, PolicyStrandsJobs), shrunk
        assert (costly.key, 4) not in {(b.key, b.cost) for b in job.budgets} or Budget.objects.get(
            key=key
        ).capacity >= 4
        seen[kind(shrunk)] += 1
    print(dict(seen))


def test_a_pause_that_races_a_pass_holds_back_every_later_one() -> None:
    budget = limit("stripe", 2)
    taker = Taker()
    jobs = [add("stripe").pk for _ in range(ROUNDS * 2)]
    seen: Counter[int] = Counter()
    ran: list[int] = []
    while len(ran) < len(jobs):
        until = None if len(seen) % 2 else timezone.now() + timedelta(hours=1)
        passed, paused = race(passing(taker, taker.run), partial(budget.pause, until))
        assert isinstance(passed, Pass), passed
        assert isinstance(paused, Budget), paused
        assert taker.run().claimed == []
        assert in_use("stripe") == len(passed.claimed)
        taker.finish(passed.claimed)
        assert taker.run().claimed == []
        budget.resume()
        later = taker.run().claimed
        taker.finish(later)
        seen[len(passed.claimed)] += 1
        ran += [job.id for job in [*passed.claimed, *later]]
    assert ran == jobs
    print(dict(seen))


def test_a_budget_that_is_deleted_beneath_a_pause_is_not_found() -> None:
    budget = limit("stripe", 1)
    with background() as start:

        def delete() -> None:
            start(Budget.objects.all().delete).result(DEADLINE_S)

        with before_statements(("SELECT", delete)), pytest.raises(BudgetNotFound):
            budget.resume()


@pytest.mark.parametrize("words", ["RECURSIVE", "FROM django_zizq_budget AS budget"])
def test_a_budget_that_is_deleted_beneath_its_explanation_is_not_found(words: str) -> None:
    budget = limit("stripe", 1)
    with background() as start:

        def delete() -> None:
            start(Budget.objects.all().delete).result(DEADLINE_S)

        with before_statements((words, delete)), pytest.raises(BudgetNotFound):
            budget.explain()
