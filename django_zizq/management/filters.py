"""The filters of ``zizq_jobs``: which jobs a subcommand is about.

Each narrows the selection, so all of them apply. One that is given an empty value matches
nothing: a script whose variable is empty must never reach every job.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from django.db.models import Q
from django.db.models.fields.json import KeyTransform

from django_zizq.core.errors import InvalidJob
from django_zizq.core.lifecycle import QUEUED, TERMINAL, UNFINISHED, JobStatus
from django_zizq.core.options import MAX_PRIORITY, encode_json
from django_zizq.dialect import Database
from django_zizq.management.arguments import at, moment, names, ranges
from django_zizq.models import Job
from django_zizq.models.job_queryset import JobQuerySet

Filter = Callable[[JobQuerySet], JobQuerySet]

T = TypeVar("T")

PARKED: Final = "parked"

_STATUSES: Final = {status.value: frozenset({status}) for status in JobStatus} | {
    "queued": QUEUED,
    "unfinished": UNFINISHED,
    "finished": TERMINAL,
    PARKED: frozenset[JobStatus](),
}


class Stated(NamedTuple):
    """A filter, the option that stated it, and whether its value was empty."""

    option: str
    narrow: Filter
    is_empty: bool


class _State(argparse.Action):
    """Add a filter to those that are stated; each once, as those of a list belong in one."""

    def __init__(
        self, *, parse: Callable[[str], Filter], repeats: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self._parse, self._repeats = parse, repeats

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        text, option = str(values), self.option_strings[0]
        stated: tuple[Stated, ...] = namespace.filters
        if not self._repeats and any(one.option == option for one in stated):
            raise argparse.ArgumentError(self, "is stated twice")
        try:
            narrow = self._parse(text) if text else _nothing
        except argparse.ArgumentTypeError as fault:
            raise argparse.ArgumentError(self, str(fault)) from None
        namespace.filters = (*stated, Stated(option, narrow, not text))


_RULES: Final = """\
All that are stated apply. One with an empty value matches nothing.
TIME is 2026-01-05, 2026-01-05T09:30 (in the site's time zone) or, from now, -2h or +30m."""


def add_filters(parser: argparse.ArgumentParser) -> None:
    """Add the options that select jobs."""
    group = parser.add_argument_group("filters", _RULES)

    def add(
        option: str, parse: Callable[[str], Filter], metavar: str, help: str, **more: Any
    ) -> None:
        group.add_argument(
            option,
            action=_State,
            dest="filters",
            default=(),
            parse=parse,
            metavar=metavar,
            help=help,
            **more,
        )

    add("--queue", _queue, "A,B", "In one of these queues.")
    add("--type", _type, "A,B", "Of one of these types.")
    add("--status", _status, "A,B", f"With one of these: {', '.join(_STATUSES)}.")
    add("--budget", _budget, "A,B", "Bound to any of these budgets.")
    add("--id", _id, "1,5-9", "With one of these ids.")
    add("--priority", _priority, "10-20", "With one of these priorities.")
    add("--created-after", _since("created_at"), "TIME", "Enqueued at that time or later.")
    add("--created-before", _until("created_at"), "TIME", "Enqueued before that time.")
    add("--failed-after", _since("failed_at"), "TIME", "Last failed at that time or later.")
    add("--failed-before", _until("failed_at"), "TIME", "Last failed before that time.")
    add("--ready-after", _since("ready_at"), "TIME", "Ready to run at that time or later.")
    add("--ready-before", _until("ready_at"), "TIME", "Ready to run before that time.")
    add(
        "--payload",
        _payload,
        "KEY=VALUE",
        "With this in the payload; user.id=7 looks inside user. VALUE is JSON, else text. "
        "May be repeated.",
        repeats=True,
    )


def select(jobs: JobQuerySet, stated: Iterable[Stated]) -> JobQuerySet:
    """Return those of *jobs* that every filter lets through."""
    for one in stated:
        jobs = one.narrow(jobs)
    return jobs


def _nothing(jobs: JobQuerySet) -> JobQuerySet:
    return jobs.filter(pk__in=[])


def _where(condition: Q) -> Filter:
    return lambda jobs: jobs.filter(condition)


def _queue(text: str) -> Filter:
    return _where(Q(queue__in=names(text)))


def _type(text: str) -> Filter:
    return _where(Q(type__in=names(text)))


def _budget(text: str) -> Filter:
    keys = names(text)
    return lambda jobs: jobs.budgets_key(*keys)


def _status(text: str) -> Filter:
    stated = text.split(",")
    for status in stated:
        if status not in _STATUSES:
            _fault(f"{status!r} is none of {', '.join(_STATUSES)}")
    condition = Q(status__in=frozenset().union(*(_STATUSES[status] for status in stated)))
    if PARKED not in stated:
        return _where(condition)

    def narrow(jobs: JobQuerySet) -> JobQuerySet:
        parked = Job.objects.using(jobs.db).parked()
        return jobs.filter(condition | Q(pk__in=parked.order_by().values("pk")))

    return narrow


def _id(text: str) -> Filter:
    return _where(_among("pk", ranges(text)))


def _priority(text: str) -> Filter:
    return _where(_among("priority", ranges(text, most=MAX_PRIORITY)))


def _among(field: str, ranges: Sequence[tuple[int, int]]) -> Q:
    single = [first for first, last in ranges if first == last]
    condition = Q(**{f"{field}__in": single})
    for first, last in ranges:
        if first != last:
            condition |= Q(**{f"{field}__gte": first, f"{field}__lte": last})
    return condition


def _since(field: str) -> Callable[[str], Filter]:
    return lambda text: _compared(f"{field}__gte", text)


def _until(field: str) -> Callable[[str], Filter]:
    return lambda text: _compared(f"{field}__lt", text)


def _compared(lookup: str, text: str) -> Filter:
    stated = moment(text)

    def narrow(jobs: JobQuerySet) -> JobQuerySet:
        instant = at(stated, now=Database(jobs.db).clock())
        return jobs.filter(**{lookup: instant})

    return narrow


def _payload(text: str) -> Filter:
    key, sign, stated = text.partition("=")
    if not sign:
        _fault(f"{text!r} is not of the form KEY=VALUE")
    path, value = [_step(step) for step in key.split(".")], _value(stated)

    def narrow(jobs: JobQuerySet) -> JobQuerySet:
        found: Any = "payload"
        for step in path:
            found = _Key(step, found)
        alias = f"payload_{len(jobs.query.annotations)}"
        return jobs.alias(**{alias: found}).filter(**{alias: value})

    return narrow


class _Key(KeyTransform):
    """A key of a payload; Django's own writes it to SQLite in ASCII, which that never finds."""

    def as_sqlite(
        self, compiler: Any, connection: Any, **context: Any
    ) -> tuple[str, tuple[str, ...]]:
        sql, paths = super().as_sqlite(compiler, connection, **context)
        _, _, steps = self.preprocess_lhs(compiler, connection)
        written = (
            f"[{s}]" if s.isdecimal() else f".{json.dumps(s, ensure_ascii=False)}" for s in steps
        )
        return sql, (f"${''.join(written)}",) * len(paths)


def _step(step: str) -> str:
    """Return a key of an object, or a place in a list, which is all that a number can be."""
    try:
        place = int(step)
    except ValueError:
        if not step:
            _fault("a key is empty")
        return _storable(step)
    if not 0 <= place < 2**31:
        _fault(f"{step!r} is no place in a list")
    return str(place)


def _value(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_fault)
    except (ValueError, argparse.ArgumentTypeError):
        return _storable(text)
    except RecursionError:
        _fault("the value is nested too deep")
    return _storable(value)


def _storable(value: T) -> T:
    """Return what both databases can look for in a payload."""
    try:
        encode_json(value)
    except InvalidJob as fault:
        _fault(f"no payload holds this: it {fault.reason}")
    return value


def _fault(fault: str) -> NoReturn:
    raise argparse.ArgumentTypeError(fault)
