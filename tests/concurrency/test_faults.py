"""The database fails at any statement of a pass: all was done or nothing, and work goes on."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import Error, models

from django_zizq import Binding, Kill, Retention, Retry, enqueue, integrity, job, maintenance
from django_zizq.dialect import Database, is_outage
from django_zizq.dispatch import Pass, Request, run_pass
from django_zizq.dispatcher import Dispatcher
from django_zizq.models import Budget, Job, JobBinding, JobError, Worker
from django_zizq.options import Options
from django_zizq.outcomes import Claimed, Ended, Failure, HandBack, Limited, Outcome, Success
from tests.concurrency.faults import Fault, Moment, fault
from tests.concurrency.stored import assert_in_use_is_exact
from tests.core.limits import cc, per
from tests.spec.harness import KILLED, Site, instant

pytestmark = [
    pytest.mark.direct("the connection that is ended is the one to the server"),
    pytest.mark.django_db(transaction=True),
]

TABLES: tuple[type[models.Model], ...] = (Worker, Budget, Job, JobBinding, JobError)
AT_ONCE = timedelta(0)
AGAIN = Failure(error_type="app.Boom", message="boom", retry_delay=timedelta(seconds=5))
OUTCOMES: dict[str, Outcome] = {
    "success": Success('"done"'),
    "success kept no time": Success(),
    "retry": AGAIN,
    "death": KILLED,
    "rate limited": Limited("service", timedelta(seconds=1)),
    "hand back": HandBack(),
}

Dump = dict[type[models.Model], list[dict[str, Any]]]


def dump() -> Dump:
    """Everything that is stored, but for the ids of error records, which rolling back uses up."""
    found = {}
    for table in TABLES:
        rows: list[dict[str, Any]] = list(table._base_manager.order_by("pk").values())
        for row in rows if table is JobError else ():
            del row["id"]
        found[table] = rows
    return found


def restore(stored: Dump) -> None:
    for table in reversed(TABLES):
        table._base_manager.all()._raw_delete("default")
    for table in TABLES:
        table._base_manager.bulk_create([table(**row) for row in stored[table]])


class Scene:
    """A worker whose jobs have ended in every way, and jobs for every way to be dispatched."""

    def __init__(self) -> None:
        site = Site()
        for key, policy in (
            ("limit", cc(9)),
            ("rate", per(10, 1_000)),
            ("single", cc(1)),
            ("service", cc(1)),
        ):
            site.create(key, policy)
        kept = {"success kept no time": Retention(completed=AT_ONCE, dead=AT_ONCE)}
        bindings: dict[str, list[Binding | str]] = {
            "retry": ["rate"],
            "death": ["rate", Binding("limit", 2)],
            "rate limited": ["service"],
            "hand back": [],
        }
        for name in OUTCOMES:
            site.enqueue(
                *bindings.get(name, ["limit"]), payload=name, priority=0, retention=kept.get(name)
            )
        site.enqueue("single", payload="still running", priority=0)
        self.held = site.dispatch().claimed
        assert len(self.held) == len(OUTCOMES) + 1
        self.ended = [
            Ended(one, OUTCOMES[one.payload]) for one in self.held if one.payload in OUTCOMES
        ]
        for key in ("limit", "rate"):
            site.enqueue_many(2, key, payload="is claimed")
        site.enqueue(payload="is claimed unbound")
        site.enqueue("single", "limit", payload="is stamped as parked", priority=1)
        site.enqueue(payload="is promoted", delay=timedelta(milliseconds=500))
        self.db = Database("default", prepares=True)
        self.worker_id = site.worker_id

    def run(self) -> Pass:
        request = Request(
            worker_id=self.worker_id, slots=8, handles=lambda _: True, ended=tuple(self.ended)
        )
        return run_pass(self.db, request, now=instant(1_000))

    def lose_the_connection(self, moment: Moment, number: int) -> Fault:
        """Run a pass into the fault, and do what the dispatcher's loop does then."""
        with fault(moment, number) as one, pytest.raises(Error) as error:
            self.run()
        assert is_outage(error.value)
        self.db.connection.close()
        return one

    def go_on(self) -> Pass:
        """Hand back what is not held, as after any outage, and run the pass again."""
        held = {one.id: one.claim for one in self.held}
        maintenance.hand_back(self.db, self.worker_id, held, now=instant(1_000))
        return self.run()


@pytest.mark.parametrize("moment", Moment)
def test_a_pass_that_is_cut_off_has_done_all_of_it_or_nothing(moment: Moment) -> None:
    scene = Scene()
    old = dump()
    with fault(moment, 0) as none:
        whole = scene.run()
    new = dump()
    assert whole.settled.moved == {one.job.id for one in scene.ended}
    assert len(whole.claimed) == 7
    assert Job.objects.filter(parked_at__isnull=False).count() == 1
    assert none.seen >= (1 if moment.is_of_commit else 12)

    for number in range(1, none.seen + 1):
        restore(old)
        assert scene.lose_the_connection(moment, number).has_struck
        if moment is not Moment.AFTER_COMMIT:
            assert dump() == old
            assert claims(scene.go_on().claimed) == claims(whole.claimed)
            assert dump() == new
            continue
        assert dump() == new
        again = scene.go_on()
        assert (again.settled.moved, again.settled.freed) == (set(), set())
        assert again.settled.refused == {one.job.id for one in scene.ended}
        assert claims(again.claimed) == {
            id: claim + 1 for id, claim in claims(whole.claimed).items()
        }
        assert {table: dump()[table] for table in (JobError, JobBinding)} == {
            table: new[table] for table in (JobError, JobBinding)
        }
        assert_in_use_is_exact()


def claims(claimed: list[Claimed]) -> dict[int, int]:
    return {one.id: one.claim for one in claimed}


RUNS: Counter[str] = Counter()


@job(name="faults.work")
def work(name: str) -> None:
    RUNS[name] += 1
    if name == "retried" and RUNS[name] == 1:
        raise Retry(delay=AT_ONCE)
    if name == "killed":
        raise Kill


EACH_RAN = Counter({"bound 1": 1, "bound 2": 1, "unbound": 1, "late": 1, "retried": 2, "killed": 1})


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispatchers that try again at once, so that hundreds of faults take seconds."""
    monkeypatch.setattr("django_zizq.pacing.RECONNECT_SECONDS", 0.001)
    monkeypatch.setattr("django_zizq.wakeup._STOP_CHECK_SECONDS", 0.01)
    monkeypatch.setattr("django_zizq.wakeup._RECONNECT_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.soak])])
@pytest.mark.parametrize("moment", [one for one in Moment if not one.is_of_commit])
def test_a_dispatcher_goes_on_after_a_fault_at_any_statement(moment: Moment, step: int) -> None:
    number, struck = 1, 0
    while dispatch_into(moment, number, *EACH_RAN):
        number += step
        struck += 1
    assert struck >= 30 // step


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("moment", [one for one in Moment if one.is_of_commit])
def test_a_dispatcher_goes_on_after_a_fault_at_any_commit(moment: Moment) -> None:
    number = 1
    while dispatch_into(moment, number, *EACH_RAN):
        number += 1
    assert number > 3


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_job_that_one_pass_settles_and_claims_again_is_not_lost_with_the_answer(
    number: int,
) -> None:
    assert dispatch_into(Moment.AFTER_COMMIT, number, "retried")


def dispatch_into(moment: Moment, number: int, *names: str) -> bool:
    """Let a dispatcher run jobs into the fault, and to their ends; False where none struck."""
    restore({table: [] for table in TABLES})
    RUNS.clear()
    Budget.objects.create_budget("limit", cc(2))
    Budget.objects.create_budget("other", cc(1))
    for name in names:
        enqueue(
            work.name,
            payload={"name": name},
            budgets={"unbound": [], "late": [], "retried": ["limit", "other"]}.get(name, ["limit"]),
            delay=timedelta(milliseconds=1) if name == "late" else None,
        )
    with fault(moment, number) as one:
        Dispatcher(Options(using="default", threads=2, until_idle=True)).run()
    assert {name: EACH_RAN[name] for name in names} == RUNS
    rows = Job.objects.order_by("id").values_list("payload__name", "status", "attempts", "losses")
    assert list(rows) == [
        (name, *{"killed": ("dead", 1), "retried": ("completed", 1)}.get(name, ("completed", 0)), 0)
        for name in names
    ]
    failed = list(JobError.objects.order_by("id").values_list("job__payload__name", "attempt"))
    assert sorted(failed) == [(name, 1) for name in ("killed", "retried") if name in names]
    assert_in_use_is_exact()
    db = Database("default")
    assert list(integrity.check(db, repair=False, now=db.clock())) == []
    return one.has_struck
