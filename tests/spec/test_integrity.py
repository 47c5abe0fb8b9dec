"""Section 5 of the spec: what must hold of the rows is verified, and mended where it can be."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.models import F

from django_zizq import Binding, BudgetPolicy, integrity
from django_zizq.dialect import Database
from django_zizq.enqueuing import BATCH
from django_zizq.integrity import Finding
from django_zizq.models import Budget, Job, JobBinding, Worker
from tests.concurrency.threads import background, before_statements
from tests.concurrency.waiting import DEADLINE_S
from tests.core.limits import cc, per, pm
from tests.spec.harness import KILLED, Site, ids, instant

ROOT = Path(__file__).resolve().parents[2]

HOUR = 3_600_000


def find(site: Site, *, repair: bool = False, at: int = 0) -> list[Finding]:
    return list(integrity.check(site.db, repair=repair, now=instant(at)))


def words(site: Site, *, repair: bool = False, at: int = 0) -> list[str]:
    return [str(finding) for finding in find(site, repair=repair, at=at)]


def delete_row(key: str) -> None:
    """Delete a budget as only somebody at the database's own prompt can."""
    Budget._base_manager.filter(key=key)._raw_delete("default")


def in_every_state(site: Site) -> None:
    site.create("stripe", cc(4))
    site.create("emails", pm(6, burst=3))
    done = site.spend("stripe")
    site.finish(done)
    dead = site.spend("emails")
    site.finish(dead, outcome=KILLED)
    site.spend("stripe", 2)
    site.spend("emails", 2)
    site.enqueue("stripe", Binding("emails", 3))
    site.enqueue(Binding("stripe", 4), delay=timedelta(hours=1))
    site.enqueue()
    site.dispatch()


@pytest.mark.parametrize("repair", [False, True])
def test_nothing_is_found_where_nothing_was_broken(site: Site, repair: bool) -> None:
    in_every_state(site)
    before = list(Job.objects.order_by("pk").values()), list(Budget.objects.values())
    assert find(site, repair=repair) == []
    assert integrity.audit(site.db) == {}
    assert (list(Job.objects.order_by("pk").values()), list(Budget.objects.values())) == before


def test_nothing_is_found_where_there_is_nothing(site: Site) -> None:
    assert find(site) == []


@pytest.mark.parametrize("wrong", [0, 1, 3, -1, 4_000_000])
@pytest.mark.parametrize("policy", [cc(5), pm(5)], ids=["limit", "rate"])
def test_tokens_in_use_are_what_is_in_flight(site: Site, wrong: int, policy: object) -> None:
    site.create("stripe", policy)  # type: ignore[arg-type]
    site.create("other", cc(2))
    running = site.spend("stripe", 2)
    site.spend("other")
    Budget.objects.filter(key="stripe").update(in_use=wrong)

    found = f"budget 'stripe': in_use is {wrong}, but jobs of 2 tokens are in flight"
    assert words(site) == [f"{found} (set in_use to 2)"]
    assert site.in_use("stripe") == wrong, "nothing is mended unasked"
    assert words(site, repair=True) == [f"{found} (repaired: set in_use to 2)"]
    assert (site.in_use("stripe"), site.in_use("other")) == (2, 1)
    assert find(site) == []
    site.finish(running)
    assert site.in_use("stripe") == 0


def test_tokens_are_in_use_for_nothing(site: Site) -> None:
    site.create("stripe", cc(1))
    Budget.objects.update(in_use=1)
    job = site.enqueue("stripe")
    assert site.dispatch().claimed == []
    assert [finding.is_repaired for finding in find(site, repair=True)] == [True]
    assert ids(site.dispatch().claimed) == [job.pk]


def test_the_audit_says_what_it_repaired(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    for key in ("a", "b", "c"):
        site.create(key, cc(5))
    site.spend("b", 2)
    Budget.objects.filter(key__in=("a", "b")).update(in_use=F("in_use") + 1)
    assert integrity.audit(site.db) == {"a": (1, 0), "b": (3, 2)}
    assert "budget 'b' had in_use 3 but 2 is in flight; repaired" in caplog.text
    assert integrity.audit(site.db) == {}


@pytest.mark.parametrize(
    ("policy", "most"),
    [(pm(5), 300_000), (pm(5, burst=2), 120_000), (per(3, 50, burst=9), 450)],
    ids=["rate", "small burst", "large burst"],
)
def test_no_rate_holds_more_than_it_can(site: Site, policy: BudgetPolicy, most: int) -> None:
    site.create("emails", policy)
    site.create("stripe", cc(5))
    assert Budget.objects.get(key="emails").level == most, "a full one is as it should be"
    assert find(site) == []
    # On top there may be less than a token, or a millisecond's drip, for who is late.
    on_top = (policy.duration_ms or 0) + policy.allocation
    Budget.objects.filter(key="emails").update(level=most + on_top - 1)
    assert words(site) == []

    Budget.objects.filter(key="emails").update(level=most + on_top)
    found = f"budget 'emails': its level of {most + on_top} is above what it can hold, {most}"
    assert words(site) == [f"{found} (set the level to {most})"]
    assert words(site, repair=True) == [f"{found} (repaired: set the level to {most})"]
    assert Budget.objects.get(key="emails").level == most
    assert find(site) == []


def test_what_a_silent_worker_runs_is_taken_back(site: Site) -> None:
    site.create("stripe", cc(5))
    for _ in range(3):
        site.enqueue("stripe")
    site.dispatch()
    site.start_worker("idle")
    assert find(site, at=30_000) == []

    found = "worker: it is lost, and 3 jobs are in flight under it"
    remedy = "take them back to ready, as any running dispatcher does"
    assert words(site, at=30_001) == [f"{found} ({remedy})"]
    assert Job.objects.in_flight().count() == 3
    assert words(site, repair=True, at=30_001) == [f"{found} (repaired: {remedy})"]
    assert list(Job.objects.values_list("status", "losses")) == [("ready", 1)] * 3
    assert site.in_use("stripe") == 0
    assert find(site, at=30_001) == []


def test_what_runs_under_no_worker_at_all_is_taken_back(site: Site) -> None:
    site.enqueue()
    site.claim()
    Worker.objects.all().delete()
    (finding,) = find(site)
    assert finding.subject == f"worker {site.worker_id}"
    assert finding.problem == "it is lost, and 1 job is in flight under it"
    assert not finding.is_repaired
    assert [finding.is_repaired for finding in find(site, repair=True)] == [True]
    assert Job.objects.get().status == "ready"
    assert find(site) == []


@pytest.mark.parametrize("delay", [None, timedelta(hours=1)], ids=["ready", "scheduled"])
def test_a_job_bound_to_a_budget_that_is_gone(site: Site, delay: timedelta | None) -> None:
    site.create("stripe", cc(5))
    site.create("other", cc(5))
    job = site.enqueue("other", "stripe", delay=delay)
    delete_row("stripe")

    found = f"job #{job.pk}: it is bound to the budget 'stripe', which is gone"
    remedy = "create the budget 'stripe' again and run this with --repair, or unbind it"
    for repair in (False, True):
        assert words(site, repair=repair) == [f"{found} ({remedy})"]
    assert site.dispatch(at=HOUR).claimed == []

    again = site.create("stripe", cc(5))
    assert len(find(site)) == 1
    # The new budget is another row, so the job belongs in another lane as well.
    assert all(finding.is_repaired for finding in find(site, repair=True))
    assert find(site) == []
    assert set(job.bindings.values_list("budget", flat=True)) >= {again.pk}
    (claimed,) = site.dispatch(at=HOUR).claimed
    assert claimed.id == job.pk
    assert (site.in_use("stripe"), site.in_use("other")) == (1, 1)


def test_a_job_whose_budget_is_gone_may_also_be_unbound(site: Site) -> None:
    site.create("stripe", cc(5))
    job = site.enqueue("stripe")
    delete_row("stripe")
    job.unbind_budget("stripe")
    assert find(site) == []
    assert site.claim().id == job.pk


@pytest.mark.parametrize("is_there", [True, False])
def test_a_binding_that_points_at_another_budget(site: Site, is_there: bool) -> None:
    right, wrong = site.create("stripe", cc(5)), site.create("other", cc(5))
    job = site.enqueue("stripe")
    JobBinding.objects.update(budget=wrong)
    if not is_there:
        delete_row("stripe")

    problem = "its binding to 'stripe' points at another budget's row"
    # Its lane is still that of the budget it was bound to.
    assert problem in [finding.problem for finding in find(site)]
    repaired = {finding.problem: finding for finding in find(site, repair=True)}
    assert repaired[problem].subject == f"job #{job.pk}"
    assert repaired[problem].remedy == "point it at the budget 'stripe'"
    assert repaired[problem].is_repaired == is_there
    assert find(site) == [] or not is_there
    assert JobBinding.objects.get().budget_id == (right.pk if is_there else wrong.pk)


def test_a_job_that_its_budget_can_never_pay(site: Site) -> None:
    site.create("stripe", cc(5))
    job = site.enqueue(Binding("stripe", 4))
    site.enqueue(Binding("stripe", 3))
    Budget.objects.update(allocation=3)

    found = f"job #{job.pk}: it needs 4 of 'stripe', which holds at most 3"
    for repair in (False, True):
        remedy = "lower the cost, or raise the budget's capacity"
        assert words(site, repair=repair) == [f"{found} ({remedy})"]
    assert job.budgets == [Binding("stripe", 4)], "no cost is changed by itself"
    job.set_budget_cost("stripe", 3)
    assert find(site) == []


def test_a_job_in_the_wrong_line(site: Site) -> None:
    site.create("stripe", cc(5))
    jobs = [site.enqueue("stripe"), site.enqueue(), site.enqueue(delay=timedelta(hours=1))]
    right = list(Job.objects.order_by("pk").values_list("lane", flat=True))
    for job in jobs:
        Job.objects.filter(pk=job.pk).update(lane=F("lane") + 1)

    found = "its lane is not that of its queue, type and budgets"
    assert words(site) == [f"job #{job.pk}: {found} (put it into its lane)" for job in jobs]
    assert words(site, repair=True) == [
        f"job #{job.pk}: {found} (repaired: put it into its lane)" for job in jobs
    ]
    assert list(Job.objects.order_by("pk").values_list("lane", flat=True)) == right
    assert find(site) == []


def test_a_binding_that_was_deleted_by_hand_leaves_the_job_in_the_wrong_line(site: Site) -> None:
    site.create("stripe", cc(5))
    job = site.enqueue("stripe")
    JobBinding.objects.all().delete()
    assert [finding.problem for finding in find(site, repair=True)] == [
        "its lane is not that of its queue, type and budgets"
    ]
    assert find(site) == []
    assert site.claim().id == job.pk


def test_jobs_that_have_finished_or_run_are_left_alone(site: Site) -> None:
    site.create("stripe", cc(5))
    for outcome in (None, KILLED):
        site.finish(site.spend("stripe", 5), outcome=outcome)
    running = site.spend("stripe", 5)
    Job.objects.update(lane=F("lane") + 1)
    Job.objects.filter(pk=running.id).update(lane=0)
    Budget.objects.update(allocation=2)
    assert find(site) == []
    site.finish(running)
    Budget.objects.get().delete()
    assert find(site) == []


def test_every_queued_job_is_looked_at(site: Site) -> None:
    site.create("stripe", cc(2))
    jobs = site.enqueue_many(2 * BATCH + 3, "stripe")
    wrong = [jobs[0].pk, jobs[BATCH - 1].pk, jobs[BATCH].pk, jobs[-1].pk]
    Job.objects.filter(pk__in=wrong).update(lane=7)
    JobBinding.objects.filter(job__in=wrong[2:]).update(cost=3)
    subjects = [finding.subject for finding in find(site, repair=True)]
    assert subjects == [f"job #{pk}" for pk in [*wrong[2:], *wrong]]
    assert [finding.subject for finding in find(site)] == [f"job #{pk}" for pk in wrong[2:]]


def test_several_faults_are_all_found_and_mended_at_once(site: Site) -> None:
    in_every_state(site)
    Budget.objects.update(in_use=F("in_use") + 5)
    Budget.objects.filter(key="emails").update(level=10**9)
    Job.objects.ready().update(lane=1)
    Worker.objects.all().delete()
    found = find(site)
    assert len({finding.problem.partition(" ")[2][:9] for finding in found}) >= 4
    repaired = find(site, repair=True)
    # A job taken back is put into its lane too, should that have been wrong.
    assert len(repaired) >= len(found)
    assert all(finding.is_repaired for finding in repaired)
    assert find(site) == []
    assert set(Budget.objects.values_list("in_use", flat=True)) == {0}


def mend_in_use() -> None:
    Budget.objects.update(in_use=0)


def lower_the_cost() -> None:
    JobBinding.objects.update(cost=3)


def take_it() -> None:
    Job.objects.update(
        status="in_flight", worker=Worker.objects.get(), dequeued_at=instant(0), claim=1
    )


LOCK = "status IN ('ready', 'scheduled') ORDER BY id"


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize(
    ("break_it", "before", "change"),
    [
        (lambda: Budget.objects.update(in_use=1), "SELECT key, in_use", mend_in_use),
        (lambda: Budget.objects.update(in_use=1), "SELECT key, in_use", lambda: delete_row("a")),
        (lambda: Job.objects.update(lane=1), LOCK, lambda: Job.objects.all().delete()),
        (lambda: Job.objects.update(lane=1), LOCK, take_it),
        (lambda: JobBinding.objects.update(cost=9), LOCK, take_it),
        (
            lambda: JobBinding.objects.update(cost=9),
            LOCK,
            lambda: JobBinding.objects.update(cost=1),
        ),
    ],
    ids=["mended", "budget gone", "job gone", "job taken", "job taken too", "rebound"],
)
def test_what_a_concurrent_change_explains_is_not_reported(
    site: Site,
    repair: bool,
    break_it: Callable[[], object],
    before: str,
    change: Callable[[], object],
) -> None:
    """Whatever looks wrong at first is looked at again once it is locked."""
    site.create("a", cc(3))
    if before == LOCK:
        site.enqueue("a")
    break_it()
    with before_statements((before, change)):
        found = find(site, repair=repair)
    assert found == []


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_a_budget_that_somebody_has_locked_is_left_for_the_next_time() -> None:
    db = Database("default")
    Site().create("stripe", cc(3))
    Budget.objects.update(in_use=1)
    is_locked, may_end = Event(), Event()

    def hold() -> None:
        with transaction.atomic():
            Budget.objects.select_for_update().get()
            is_locked.set()
            assert may_end.wait(DEADLINE_S)

    with background() as start:
        holder = start(hold)
        assert is_locked.wait(DEADLINE_S)
        assert integrity.audit(db) == {}
        may_end.set()
        holder.result(DEADLINE_S)
    assert integrity.audit(db) == {"stripe": (1, 0)}


class Checked:
    """What ``manage.py zizq_check`` prints, and how it ends."""

    def __init__(self, *arguments: str) -> None:
        stdout = io.StringIO()
        self.code, self.error = 0, ""
        try:
            call_command("zizq_check", *arguments, stdout=stdout)
        except CommandError as error:
            self.code, self.error = error.returncode, str(error)
        self.output = stdout.getvalue()


@pytest.mark.django_db
def test_the_command_says_that_all_is_well() -> None:
    Site().create("stripe", cc(3))
    for arguments in ((), ("--repair",)):
        checked = Checked(*arguments)
        assert (checked.code, checked.error, checked.output) == (0, "", "All is well.\n")
    assert json.loads(Checked("--json").output) == []


@pytest.mark.django_db
def test_the_command_names_what_it_found_and_fails() -> None:
    site = Site()
    site.create("a", cc(3))
    site.create("b", cc(3))
    Budget.objects.update(in_use=2)
    checked = Checked()
    assert checked.output.splitlines() == [
        f"budget '{key}': in_use is 2, but jobs of 0 tokens are in flight (set in_use to 0)"
        for key in "ab"
    ]
    assert (checked.code, checked.error) == (1, "2 problems to mend: run it with --repair.")
    checked = Checked("--repair")
    assert (checked.code, checked.error) == (0, "")
    assert checked.output.splitlines()[1:] == [
        "budget 'b': in_use is 2, but jobs of 0 tokens are in flight (repaired: set in_use to 0)",
        "2 problems repaired.",
    ]
    assert Checked().output == "All is well.\n"


@pytest.mark.django_db
def test_the_command_fails_where_it_cannot_mend_all() -> None:
    site = Site()
    site.create("stripe", cc(3))
    job = site.enqueue(Binding("stripe", 3))
    Budget.objects.update(allocation=2, in_use=1)
    checked = Checked("--repair")
    assert (checked.code, checked.error) == (1, "1 problem to mend: look at them one by one.")
    assert [line.partition(":")[0] for line in checked.output.splitlines()] == [
        "budget 'stripe'",
        f"job #{job.pk}",
    ]


@pytest.mark.django_db
def test_the_command_prints_json() -> None:
    Site().create("stripe", cc(3))
    Budget.objects.update(in_use=1)
    finding = {
        "subject": "budget 'stripe'",
        "problem": "in_use is 1, but jobs of 0 tokens are in flight",
        "remedy": "set in_use to 0",
        "is_repaired": False,
    }
    checked = Checked("--json")
    assert (checked.code, json.loads(checked.output)) == (1, [finding])
    checked = Checked("--json", "--repair")
    assert (checked.code, json.loads(checked.output)) == (0, [finding | {"is_repaired": True}])


@pytest.mark.django_db(transaction=True)
def test_the_command_as_a_process(process_environment: dict[str, str]) -> None:
    Site().create("stripe", cc(3))
    Budget.objects.update(in_use=1)

    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "django", "zizq_check", *arguments],
            cwd=ROOT,
            env=process_environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    code, output, error = run("--json")
    assert (code, [one["subject"] for one in json.loads(output)]) == (1, ["budget 'stripe'"])
    assert error == "CommandError: 1 problem to mend: run it with --repair.\n"
    code, output, error = run("--repair")
    assert (code, output.splitlines()[-1], error) == (0, "1 problem repaired.", "")
    assert Budget.objects.get().in_use == 0
