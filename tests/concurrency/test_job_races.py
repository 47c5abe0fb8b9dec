"""Verbs on jobs that race each other and the dispatchers: what may come out, by counts."""

from collections import Counter
from functools import partial

import pytest

from django_zizq import (
    Binding,
    BudgetChange,
    JobChange,
    JobFinished,
    JobNotDead,
    JobNotFound,
    JobNotQueued,
    UniqueKeyHeld,
)
from django_zizq.dispatch import Pass
from django_zizq.models import Job, JobBinding
from django_zizq.outcomes import Claimed
from tests.concurrency.racing import ROUNDS, Verb, add, add_many, die, kind, passing, race
from tests.concurrency.stored import assert_in_use_is_exact, in_use, limit, statuses
from tests.concurrency.takers import Taker
from tests.concurrency.threads import (
    at_once,
    background,
    before_statements,
)
from tests.concurrency.waiting import DEADLINE_S

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("sound"),
]


def test_bulk_changes_in_opposite_orders_wait_for_each_other_and_never_deadlock() -> None:
    for key in ("first", "second"):
        limit(key, 3)
    ids = [job.pk for job in add_many(2_000, "first")]

    def ascending() -> int:
        selection = Job.objects.filter(pk__gte=ids[0]).order_by("pk")
        return sum(selection.rebind_budget("second", 1 + n % 3).changed for n in range(3))

    def descending() -> int:
        changed = 0
        for n, start in enumerate(range(0, 2_000, 250)):
            selection = Job.objects.order_by("-pk")[start : start + 250]
            changed += selection.set_budget_cost("first", 2 + n % 2).changed
        return changed

    def shuffled() -> int:
        selection = Job.objects.order_by("?")
        return selection.bind_budget("second").changed + selection.unbind_budget("second").changed

    def in_batches() -> int:
        selection = Job.objects.filter(pk__in=ids[::-1])
        return selection.rebind_budget("second", 3, batch_size=300).changed

    for _ in range(3):
        results = race(ascending, descending, shuffled, in_batches)
        assert [kind(result) for result in results] == ["int"] * 4, results
    assert JobBinding.objects.filter(key="first").count() == 2_000
    assert JobBinding.objects.values("job", "key").distinct().count() == JobBinding.objects.count()


def test_of_two_racing_requeues_one_moves_the_job() -> None:
    limit("stripe", 1)
    job = add("stripe")
    die(job)
    seen: Counter[str] = Counter()
    for turn in range(ROUNDS):
        same = Job.objects.filter(pk=job.pk)
        one, other = job, Job.objects.get(pk=job.pk)
        verbs: list[list[Verb]] = [
            [one.requeue, other.requeue],
            [same.requeue, Job.objects.dead().requeue],
            [one.requeue, same.retry_now],
        ]
        results = race(*verbs[turn % 3])
        moved = [
            result.changed if isinstance(result, JobChange) else isinstance(result, Job)
            for result in results
        ]
        assert sum(moved) == 1, results
        for result in results:
            assert isinstance(result, Job | JobChange | JobNotDead), result
            seen[kind(result)] += 1
        assert statuses() == {"ready": 1}
        die(job)
    print(dict(seen))


def test_a_requeue_that_races_an_enqueue_of_the_same_unique_key() -> None:
    seen: Counter[str] = Counter()
    for turn in range(ROUNDS * 2):
        options = {"unique_key": f"k{turn}", "unique_while": "active"}
        dead = add(**options)
        die(dead)
        same = Job.objects.filter(pk=dead.pk)
        bulk = turn % 2
        requeued, enqueued = race(same.requeue if bulk else dead.requeue, partial(add, **options))
        assert isinstance(enqueued, Job), enqueued
        if enqueued.is_duplicate:
            assert enqueued.pk == dead.pk
            assert requeued == JobChange(1) if bulk else isinstance(requeued, Job), requeued
        elif bulk:
            assert requeued == JobChange(0, [dead.pk])
        else:
            assert isinstance(requeued, UniqueKeyHeld), requeued
            assert requeued.holder == enqueued.pk
        held = Job.objects.filter(unique_key=f"k{turn}")
        assert held.ready().count() == 1
        seen["enqueued" if not enqueued.is_duplicate else "requeued"] += 1
        Job.objects.all().delete()
    print(dict(seen))


def test_requeues_that_take_the_same_unique_keys_in_opposite_orders() -> None:
    keys = [f"k{n:03}" for n in range(120)]
    rising = [add(unique_key=key, unique_while="active") for key in keys]
    die(*rising)
    falling = [add(unique_key=key, unique_while="active") for key in reversed(keys)]
    die(*falling)
    sides = [Job.objects.filter(pk__in=[job.pk for job in jobs]) for jobs in (rising, falling)]
    for _ in range(ROUNDS // 3):
        results = at_once(*(side.requeue for side in sides))
        assert all(isinstance(result, JobChange) for result in results), results
        assert sum(result.changed for result in results) == len(keys), results
        assert Job.objects.ready().count() == len(keys)
        Job.objects.all().kill()


def test_a_kill_that_races_the_end_of_the_job_gives_its_tokens_back_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A kill takes longer than a pass would wait for it where the machine is busy.
    monkeypatch.setattr("django_zizq.dispatch.LOCK_TIMEOUT_MS", 30_000)
    limit("stripe", 5)
    taker = Taker()
    seen: Counter[str] = Counter()
    for turn in range(ROUNDS * 2):
        job = add(Binding("stripe", 4))
        held = taker.run().claimed
        assert in_use("stripe") == 4
        kill: Verb = Job.objects.filter(pk=job.pk).kill if turn % 2 else job.kill
        end = passing(taker, partial(taker.finish, held))
        killed, ended = race(kill, end) if turn % 4 < 2 else race(end, kill)[::-1]
        assert isinstance(ended, Pass), ended
        job.refresh_from_db()
        assert in_use("stripe") == 0
        if ended.settled.moved:
            assert killed == JobChange() if turn % 2 else isinstance(killed, JobFinished), killed
            assert job.status == "completed"
        else:
            assert killed == JobChange(1) if turn % 2 else isinstance(killed, Job), killed
            assert job.status == "dead"
        seen[job.status] += 1
    print(dict(seen))


@pytest.mark.parametrize("verb", ["unbind", "set_cost"])
def test_a_dispatch_that_races_a_change_of_the_binding_pays_what_is_stored(verb: str) -> None:
    limit("stripe", 3)
    taker = Taker()
    seen: Counter[str] = Counter()
    for turn in range(ROUNDS * 2):
        job = add("stripe")
        same = Job.objects.filter(pk=job.pk)
        verbs: dict[str, list[Verb]] = {
            "unbind": [partial(job.unbind_budget, "stripe"), same.clear_budgets],
            "set_cost": [
                partial(job.set_budget_cost, "stripe", 3),
                partial(same.set_budget_cost, "stripe", 3),
            ],
        }
        passed, changed = race(passing(taker, taker.run), verbs[verb][turn % 2])
        assert isinstance(passed, Pass), passed
        claimed = passed.claimed
        if isinstance(changed, JobNotQueued) or changed == BudgetChange(0, [job.pk]):
            assert [paid(one) for one in claimed] == [1]
            seen["taken first"] += 1
        else:
            assert not isinstance(changed, Exception), changed
            later = claimed or taker.run().claimed
            assert [paid(one) for one in later] == [0 if verb == "unbind" else 3]
            seen["changed first" if claimed else "skipped, then taken"] += 1
            claimed = later
        assert_in_use_is_exact()
        taker.finish(claimed)
    assert statuses() == {"completed": ROUNDS * 2}
    print(dict(seen))


def paid(job: Claimed) -> int:
    cost = sum(cost for _, cost in job.bindings)
    assert in_use("stripe") == cost
    return cost


def test_a_job_that_is_deleted_beneath_a_verb_is_not_found() -> None:
    limit("stripe", 1)
    job = add()
    with background() as start:

        def delete() -> None:
            start(Job.objects.all().delete).result(DEADLINE_S)

        with before_statements(("payload", delete)), pytest.raises(JobNotFound):
            job.bind_budget("stripe")
