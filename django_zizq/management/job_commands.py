"""The subcommands of ``zizq_jobs`` that only look: list, show, count and explain."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from django.db.models import Count
from rich.text import Text

from django_zizq.core.errors import JobNotFound
from django_zizq.core.lifecycle import UNFINISHED, JobStatus
from django_zizq.dialect import Database
from django_zizq.management.arguments import count, job_id
from django_zizq.management.filters import PARKED, add_filters, select
from django_zizq.management.job_sheet import error_facts, job_facts, sheet
from django_zizq.management.subcommands import Call, Subcommands
from django_zizq.management.tables import Cell, Column
from django_zizq.management.words import clock
from django_zizq.models import Job
from django_zizq.models.job_queryset import JobQuerySet

_COLUMNS: Final = (
    Column("id", is_number=True),
    Column("type"),
    Column("queue"),
    Column("status"),
    Column("priority", is_number=True),
    Column("attempts", is_number=True),
    Column("ready at"),
    Column("budgets", folds=True),
)

_COLOURS: Final = {PARKED: "yellow", "in_flight": "green", "dead": "red"}


def add_subcommands(subcommands: Subcommands) -> None:
    """Add all of them."""
    parser = subcommands.add(
        "list",
        _list,
        help="List jobs in the order of dispatch; finished ones only by --status or --id.",
        usage="[FILTERS] [--limit N] [--json]",
        examples="""zizq_jobs list --status parked
                     zizq_jobs list --queue billing --payload user.id=7 --limit 200""",
    )
    limit = "The most to list (default: 50)."
    parser.add_argument("--limit", type=count, default=50, metavar="N", help=limit)
    add_filters(parser)
    parser = subcommands.add(
        "count",
        _count,
        help="Count jobs.",
        usage="[FILTERS] [--by status|queue|type] [--json]",
        examples="""zizq_jobs count --by status
                     zizq_jobs count --status dead --created-after -1d""",
    )
    by = "Count each status, queue or type by itself."
    parser.add_argument("--by", choices=("status", "queue", "type"), help=by)
    add_filters(parser)
    _add_of_one(subcommands)


def _add_of_one(subcommands: Subcommands) -> None:
    parser = subcommands.add(
        "show",
        _show,
        help="Show all there is to know of a job.",
        usage="ID [--traceback] [--json]",
        examples="zizq_jobs show 17 --traceback",
    )
    parser.add_argument("id", type=job_id, metavar="ID", help="The id of the job.")
    parser.add_argument(
        "--traceback",
        dest="tracebacks",
        action="store_true",
        help="Show the tracebacks of its errors as well.",
    )
    subcommands.add(
        "explain",
        _explain,
        help="Say why a job is not running, and when it will.",
        usage="ID [--json]",
        examples="zizq_jobs explain 17",
    ).add_argument("id", type=job_id, metavar="ID", help="The id of the job.")


def selected(call: Call) -> JobQuerySet:
    """Return the jobs that the filters of the call let through."""
    for stated in call["filters"]:
        if stated.is_empty:
            call.screen.note(f"{stated.option} is empty, so no job is selected.")
    return select(Job.objects.using(call.using), call["filters"])


def _list(call: Call) -> None:
    jobs = selected(call)
    if not any(one.option in ("--status", "--id") for one in call["filters"]):
        jobs = jobs.filter(status__in=UNFINISHED)
    page = list(jobs.order_by("priority", "id").prefetch_related("bindings")[: call["limit"]])
    total = jobs.count()
    parked = _parked(call, page)
    if call.screen.as_json:
        facts = [job_facts(job, is_parked=job.pk in parked) for job in page]
        call.screen.json({"count": total, "jobs": facts})
        return
    if not page:
        call.screen.say("There is no such job." if call["filters"] else "No job is unfinished.")
        return
    now = Database(call.using).clock()
    rows = [_row(job, PARKED if job.pk in parked else job.status, now=now) for job in page]
    call.screen.table(_COLUMNS, rows)
    if total > len(page):
        call.screen.say(f"and {total - len(page)} more; --limit N lists more of them.")


def _row(job: Job, status: str, *, now: datetime) -> list[Cell]:
    return [
        job.pk,
        job.type,
        job.queue,
        Text(status, _COLOURS.get(status, "")),
        job.priority,
        job.attempts,
        clock(job.ready_at, now=now),
        ", ".join(map(str, job.bindings.all())) or "-",
    ]


def _parked(call: Call, page: list[Job]) -> set[int]:
    ready = [job.pk for job in page if job.status == JobStatus.READY]
    if not ready:
        return set()
    parked = Job.objects.using(call.using).parked().filter(pk__in=ready).order_by()
    return set(parked.values_list("pk", flat=True))


def _count(call: Call) -> None:
    jobs, by = selected(call), call["by"]
    counts = {} if by is None else _counts(call, jobs, by)
    total = jobs.count() if by is None else sum(counts.values())
    if call.screen.as_json:
        call.screen.json({"count": total} if by is None else {"count": total, "by": counts})
    elif by is None:
        call.screen.say(str(total))
    else:
        rows: list[Any] = [*counts.items(), ("all", total)]
        call.screen.table([Column(by), Column("jobs", is_number=True)], rows)


def _counts(call: Call, jobs: JobQuerySet, by: str) -> dict[str, int]:
    """Return how many jobs there are of each; parked ones count as parked, not as ready."""
    counted = jobs.order_by().values_list(by).annotate(number=Count("pk"))
    counts = dict(counted.order_by("-number", by))
    if by != "status":
        return counts
    parked = Job.objects.using(call.using).parked().order_by().values("pk")
    waiting = jobs.filter(pk__in=parked).count() if counts.get(JobStatus.READY) else 0
    found = {PARKED: waiting, **counts}
    found[JobStatus.READY] = max(0, counts.get(JobStatus.READY, 0) - waiting)
    order = ["scheduled", "ready", PARKED, "in_flight", "completed", "dead"]
    return {status: found[status] for status in order if found.get(status)}


def _show(call: Call) -> None:
    job = _job(call)
    errors, explanation = list(job.errors.all()), job.explain()
    if not call.screen.as_json:
        call.screen.explain(str(explanation))
        parked, tracebacks = explanation.is_parked, call["tracebacks"]
        call.screen.say(sheet(job, errors, is_parked=parked, with_tracebacks=tracebacks))
        return
    call.screen.json(
        {
            **job_facts(job, is_parked=explanation.is_parked),
            "errors": [error_facts(error) for error in errors],
            "explanation": explanation.as_dict(),
        }
    )


def _explain(call: Call) -> None:
    explanation = _job(call).explain()
    if call.screen.as_json:
        call.screen.json(explanation.as_dict())
    else:
        call.screen.explain(str(explanation))


def _job(call: Call) -> Job:
    job = Job.objects.using(call.using).prefetch_related("bindings").filter(pk=call["id"]).first()
    if job is None:
        raise JobNotFound(call["id"])
    return job
