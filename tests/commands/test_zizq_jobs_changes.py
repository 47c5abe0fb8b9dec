"""The subcommands of ``manage.py zizq_jobs`` that change jobs."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError

from django_zizq import Binding, enqueue
from django_zizq.models import Budget, Job
from django_zizq.models.job_queryset import JobQuerySet
from tests.commands import calling
from tests.commands.calling import Terminal, manage
from tests.core.limits import HOUR, cc, per
from tests.spec.harness import KILLED, Site

pytestmark = pytest.mark.django_db

call = partial(calling.call, "zizq_jobs")
call_json = partial(calling.call_json, "zizq_jobs")
refusal = partial(calling.refusal, "zizq_jobs")
misuse = partial(calling.misuse, "zizq_jobs")

VERBS = [
    ["bind", "stripe"],
    ["rebind", "stripe"],
    ["set-cost", "stripe", "2"],
    ["unbind", "stripe"],
    ["clear"],
    ["retry"],
    ["run-now"],
    ["kill"],
    ["delete"],
]
every_verb = pytest.mark.parametrize("verb", VERBS, ids=[verb[0] for verb in VERBS])


def budgets(job: Job) -> list[Binding]:
    return Job.objects.get(pk=job.pk).budgets


def status(job: Job) -> str:
    return Job.objects.get(pk=job.pk).status


def everything() -> Any:
    """What is stored of the jobs, as far as a verb could change it."""
    jobs = Job.objects.order_by("pk").values_list("pk", "status", "lane", "ready_at")
    return list(jobs), [budgets(job) for job in Job.objects.order_by("pk")]


@pytest.fixture
def jobs(site: Site) -> list[Job]:
    """One job for each status that some verb is about, all but one of them bound to `stripe`."""
    site.create("stripe", cc(5))
    site.create("emails", cc(5))
    dead = site.enqueue("stripe")
    site.finish(site.claim(), outcome=KILLED)
    running = site.enqueue("stripe")
    site.claim()
    ready, unbound = site.enqueue("stripe"), site.enqueue()
    scheduled = enqueue("task", budgets=["stripe"], delay=timedelta(days=1))
    return [dead, running, ready, unbound, scheduled]


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a terminal there, at which somebody types an answer."""

    def answer(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", Terminal(text))

    return answer


@pytest.fixture
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))


def test_bind_adds_a_budget_to_the_queued_and_names_those_in_flight(jobs: list[Job]) -> None:
    _, running, ready, unbound, scheduled = jobs
    assert call("bind", "emails", "--cost", 2, "--type", "task") == (
        f"3 jobs changed.\n1 job in flight was left as it is: {running.pk}\n"
    )
    assert budgets(ready) == [Binding("stripe"), Binding("emails", 2)]
    assert budgets(unbound) == [Binding("emails", 2)]
    assert budgets(scheduled) == [Binding("stripe"), Binding("emails", 2)]


def test_bind_creates_a_budget_that_is_missing_where_it_is_told_how(jobs: list[Job]) -> None:
    ready = jobs[2]
    assert "no such budget" in refusal("bind", "pdf", "--id", ready.pk)
    policy = ["--create-with", "--rate", "10/1h", "--burst", "2"]
    assert call("bind", "pdf", "--id", ready.pk, *policy) == "1 job changed.\n"
    assert Budget.objects.get(key="pdf").policy == per(10, HOUR, burst=2)
    call("rebind", "slow", "--id", ready.pk, "--create-with", "--while-in-flight", 1)
    assert budgets(ready) == [Binding("stripe"), Binding("pdf"), Binding("slow")]


def test_rebind_set_cost_unbind_and_clear_change_what_is_bound(jobs: list[Job]) -> None:
    ready, unbound = jobs[2], jobs[3]
    both = ["--id", f"{ready.pk},{unbound.pk}"]
    assert call("rebind", "stripe", "--cost", 3, *both) == "2 jobs changed.\n"
    assert budgets(ready) == budgets(unbound) == [Binding("stripe", 3)]
    assert call("set-cost", "stripe", 1, *both) == "2 jobs changed.\n"
    assert call("set-cost", "stripe", 1, *both) == "0 jobs changed.\n"
    assert call("unbind", "stripe", "--id", unbound.pk) == "1 job changed.\n"
    assert call("clear", *both) == "1 job changed.\n"
    assert budgets(ready) == budgets(unbound) == []


def test_retry_and_run_now_make_jobs_ready(jobs: list[Job]) -> None:
    dead, *_, scheduled = jobs
    assert call("retry", "--status", "scheduled,dead") == "1 job made ready.\n"
    assert (status(dead), status(scheduled)) == ("ready", "scheduled")
    assert call("run-now", "--budget", "stripe") == "1 job made ready.\n"
    assert status(scheduled) == "ready"


def test_retry_names_what_cannot_be_requeued_and_why(site: Site) -> None:
    for key in ("gone", "there"):
        site.create(key, cc(1))
    stuck, free = site.enqueue("gone"), site.enqueue("there")
    for one in (stuck, free):
        one.kill()
    Budget.objects.get(key="gone").delete()
    made, left, reason = call("retry", "--status", "dead").splitlines()
    assert made == "1 job made ready."
    assert left == f"1 job that cannot be requeued was left as it is: {stuck.pk}"
    assert reason.startswith("- Binding to budget 'gone': no such budget.")
    assert refusal("retry", "--status", "dead") == "None of these jobs can be requeued."


def test_a_policy_for_a_budget_that_exists_is_said_to_be_ignored(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.create("stripe", cc(3))
    site.enqueue()
    stated = ["--create-with", "--while-in-flight", "7", "--queue", "default"]
    assert call("bind", "stripe", *stated) == "1 job changed.\n"
    assert capsys.readouterr().err == (
        "Budget 'stripe' exists as 3 while in flight and stays so; zizq_budgets update changes it."
        "\n"
    )
    assert Budget.objects.get().policy == cc(3)


def test_kill_keeps_the_reason_and_delete_deletes(jobs: list[Job]) -> None:
    _, running, ready, *_ = jobs
    stated = ["--id", f"{running.pk},{ready.pk}"]
    assert call("kill", "--reason", "the tenant is gone", *stated) == "2 jobs killed.\n"
    assert status(running) == status(ready) == "dead"
    error = Job.objects.get(pk=ready.pk).errors.get()
    assert error.message == "the tenant is gone"
    assert call("delete", "--status", "dead") == "3 jobs deleted.\n"
    assert Job.objects.count() == 2


def test_a_long_list_of_ids_is_cut_for_a_person_and_whole_for_a_program(site: Site) -> None:
    site.create("stripe", cc(100))
    site.enqueue_many(12, "stripe")
    running = sorted(job.id for job in site.dispatch().claimed)
    shown = ", ".join(map(str, running[:10]))
    assert call("clear", "--status", "in_flight") == (
        f"0 jobs changed.\n12 jobs in flight were left as they are: {shown} and 2 more\n"
    )
    assert call_json("clear", "--status", "in_flight") == {
        "changed": 0,
        "blocked": running,
        "dry_run": False,
    }


def test_what_the_library_refuses_changes_nothing(jobs: list[Job]) -> None:
    before = everything()
    one = ["--id", str(jobs[2].pk)]
    assert "can never be paid" in refusal("set-cost", "stripe", 99, *one)
    assert "at least 1, not 0" in refusal("bind", "emails", "--cost", 0, *one)
    assert "'strpe' does not exist" in refusal("unbind", "strpe", *one)
    assert everything() == before


@every_verb
def test_without_a_filter_nothing_is_changed(verb: list[str], jobs: list[Job]) -> None:
    before = everything()
    assert "state a filter such as --queue or --id, or --all" in misuse(*verb)
    assert "state a filter" in misuse(*verb, "--dry-run")
    assert "either filters or --all" in misuse(*verb, "--all", "--queue", "default")
    assert "either filters or --all" in misuse(*verb, "--all", "--queue", "")
    assert everything() == before


@every_verb
def test_a_dry_run_says_what_would_happen_and_changes_nothing(
    verb: list[str], jobs: list[Job]
) -> None:
    before = everything()
    said = call(*verb, "--all", "--dry-run")
    planned = call_json(*verb, "--all", "--dry-run")
    assert " would be " in said.splitlines()[0]
    assert planned.pop("dry_run") is True
    assert everything() == before
    done = call_json(*verb, "--all", "--no-input")
    assert done.pop("dry_run") is False
    assert done == planned
    assert said.startswith(f"{done['changed']} job")
    assert done["changed"] > 0


@every_verb
def test_all_is_refused_where_nobody_can_be_asked(
    verb: list[str], jobs: list[Job], no_terminal: None
) -> None:
    before = everything()
    assert "Add --no-input." in refusal(*verb, "--all")
    assert everything() == before


@pytest.mark.parametrize(
    ("verb", "question"),
    [
        (["clear"], "This unbinds every budget from up to 3 jobs. Continue? [y/N] "),
        (["unbind", "stripe"], "This unbinds 'stripe' from up to 3 jobs. Continue? [y/N] "),
        (["retry"], "This tries again up to 2 jobs. Continue? [y/N] "),
        (["run-now"], "This makes 1 job ready. Continue? [y/N] "),
        (["kill"], "This kills 4 jobs. Continue? [y/N] "),
        (["delete"], "This deletes 5 jobs. Continue? [y/N] "),
    ],
)
def test_all_asks_at_a_terminal(
    verb: list[str],
    question: str,
    jobs: list[Job],
    typed: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = everything()
    for answer in ("n\n", "\n", "", "yesterday\n"):
        typed(answer)
        assert refusal(*verb, "--all") == "Nothing was changed."
        assert capsys.readouterr().err == question
    assert everything() == before
    typed("y\n")
    assert "job" in call(*verb, "--all")
    assert everything() != before


def test_nothing_is_asked_where_a_filter_narrows_or_no_job_is_there(typed: Any) -> None:
    typed("")
    assert call("delete", "--all") == "0 jobs deleted.\n"
    enqueue("task")
    assert call("delete", "--queue", "default") == "1 job deleted.\n"


def test_the_answer_to_a_program_holds_no_question(jobs: list[Job], typed: Any) -> None:
    typed("y\n")
    assert call_json("delete", "--all") == {"changed": 5, "blocked": [], "dry_run": False}


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["bind", "a", "--while-in-flight", "3"], "a policy is for --create-with"),
        (["bind", "a", "--create-with"], "state a policy"),
        (["bind"], "required: KEY"),
        (["bind", "a", "--cost", "x"], "argument --cost: 'x' is not a whole number"),
        (["set-cost", "a"], "required: COST"),
        (["kill", "--batch-size", "0"], "argument --batch-size: '0' is not a whole number of at"),
    ],
)
def test_wrong_usage_is_said_in_a_line(arguments: list[str], fault: str) -> None:
    assert fault in misuse(*arguments, "--queue", "default")


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The batch sizes that the verbs were called with."""
    seen: list[object] = []
    for name in ("clear_budgets", "run_now", "retry_now", "kill", "delete"):
        verb = getattr(JobQuerySet, name)

        def spy(self: Any, *args: Any, verb: Any = verb, **how: Any) -> Any:
            seen.append(how["batch_size"])
            return verb(self, *args, **how)

        monkeypatch.setattr(JobQuerySet, name, spy)
    return seen


@pytest.mark.parametrize(
    ("verb", "size"),
    [("clear", None), ("run-now", 1000), ("retry", 1000), ("kill", 1000), ("delete", 1000)],
)
def test_a_batch_is_a_transaction(verb: str, size: int | None, batches: list[object]) -> None:
    call(verb, "--queue", "default")
    call(verb, "--queue", "default", "--batch-size", 7)
    assert batches == [size, 7]


def test_progress_is_shown_on_a_terminal_and_nothing_in_a_pipe(site: Site) -> None:
    site.enqueue_many(20)
    screen = Terminal()
    call("kill", "--queue", "default", "--batch-size", 5, stdout=screen)
    assert "20/20" in screen.getvalue()
    assert screen.lines[-1].endswith("20 jobs killed.")
    assert call("delete", "--queue", "default") == "20 jobs deleted.\n"


def interrupt_after(verb: str, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C once the verb has reported so many batches."""
    plain = getattr(JobQuerySet, verb)

    def press(done: int) -> None:
        nonlocal calls
        calls -= 1
        if not calls:
            raise KeyboardInterrupt

    def interrupted(self: Any, *args: Any, **how: Any) -> Any:
        return plain(self, *args, **{**how, "progress": press})

    monkeypatch.setattr(JobQuerySet, verb, interrupted)


@pytest.mark.parametrize(
    ("arguments", "left", "said"),
    [
        (["kill"], 6, "stay done"),
        (["kill", "--batch-size", "2"], 4, "stay done"),
        (["kill", "--batch-size", "2", "--dry-run"], 6, "nothing was changed"),
    ],
)
def test_an_interrupt_says_what_is_done(
    site: Site, monkeypatch: pytest.MonkeyPatch, arguments: Iterable[str], left: int, said: str
) -> None:
    site.enqueue_many(6)
    interrupt_after("kill", 1 if left == 6 else 2, monkeypatch)
    with pytest.raises(CommandError, match=said) as caught:
        call(*arguments, "--queue", "default")
    assert caught.value.returncode == 130
    assert Job.objects.ready().count() == left


@pytest.mark.django_db(transaction=True)
def test_the_exit_codes_are_0_done_1_refused_2_wrong_usage(
    process_environment: dict[str, str],
) -> None:
    enqueue("task")
    run = partial(manage, process_environment, "zizq_jobs", "delete")
    for arguments, code, said in (
        ([], 2, "state a filter"),
        (["--all"], 1, "Add --no-input."),
        (["--queue", ""], 0, "--queue is empty"),
    ):
        ended = run(*arguments)
        assert ended.returncode == code, ended
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr
    assert Job.objects.count() == 1
    done = run("--all", "--no-input")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 job deleted.\n", "")
