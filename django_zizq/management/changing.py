"""How a selection of jobs is changed from the command line: asked about, shown, reported.

Without a filter nothing is changed, unless ``--all`` says that every job is meant; then a person
at a terminal is asked, and a script has to say ``--no-input``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from django.core.management.base import CommandError

from django_zizq import BudgetChange, JobChange
from django_zizq.core.lifecycle import JobStatus
from django_zizq.management.arguments import size
from django_zizq.management.filters import add_filters
from django_zizq.management.job_commands import selected
from django_zizq.management.subcommands import INTERRUPTED, Call, Subcommands
from django_zizq.management.words import listed
from django_zizq.models.batches import How
from django_zizq.models.job_queryset import JobQuerySet
from django_zizq.wording import counted

Answer = BudgetChange | JobChange

MOST_REASONS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Change:
    """A verb over a selection, and how it is spoken of.

    *touches* are the statuses that it is for, *asks* what it does to ``{jobs}``, *done*
    what they are afterwards, and *left* what it calls those, ``{}``, that it could not change.
    """

    name: str
    help: str
    apply: Callable[[Call, JobQuerySet, How], Answer]
    asks: str
    done: str
    touches: frozenset[JobStatus]
    left: str = ""
    batch_size: int | None = None


def add_change(
    subcommands: Subcommands, change: Change, *, example: str, usage: str = ""
) -> argparse.ArgumentParser:
    """Add the subcommand of *change*, with the options that all of them have."""
    parser = subcommands.add(
        change.name,
        lambda call: _run(call, change),
        help=change.help,
        usage=f"{usage}(FILTERS | --all) [options]",
        examples=example,
    )
    add, default = parser.add_argument, change.batch_size or "all at once"
    add("--all", action="store_true", help="Every job; asks first.")
    add("--dry-run", action="store_true", help="Say what would happen and change nothing.")
    add(
        "--no-input",
        "--noinput",
        dest="interactive",
        action="store_false",
        help="Do not ask.",
    )
    add(
        "--batch-size",
        type=size,
        default=change.batch_size,
        metavar="N",
        help=f"Jobs in one transaction; those before it stay done (default: {default}).",
    )
    add_filters(parser)
    return parser


def _run(call: Call, change: Change) -> None:
    if call["all"] and call["filters"]:
        call.refuse("state either filters or --all")
    if not call["all"] and not call["filters"]:
        call.refuse("state a filter such as --queue or --id, or --all for every job")
    jobs = selected(call)
    if call["all"] and not call["dry_run"] and call["interactive"]:
        _confirm(call, change, jobs)
    try:
        with call.screen.progress(jobs.count) as progress:
            how = How(batch_size=call["batch_size"], dry_run=call["dry_run"], progress=progress)
            answer = change.apply(call, jobs, how)
    except KeyboardInterrupt:
        raise CommandError(_interrupted(call), returncode=INTERRUPTED) from None
    _report(call, change, answer)


def _confirm(call: Call, change: Change, jobs: JobQuerySet) -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError(
            "Nothing was changed: --all asks first, and there is no terminal to ask at. "
            "Add --no-input."
        )
    touched = jobs.filter(status__in=change.touches).count()
    if not touched:
        return
    what = change.asks.format(jobs=counted(touched, "job"), key=call.options.get("key"))
    call.screen.ask(f"This {what}. Continue? [y/N] ")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("Nothing was changed.")


def _interrupted(call: Call) -> str:
    if call["batch_size"] is None or call["dry_run"]:
        return "Interrupted: nothing was changed."
    return "Interrupted: the batches that were done stay done; the one under way is undone."


def _report(call: Call, change: Change, answer: Answer) -> None:
    dry = call["dry_run"]
    if call.screen.as_json:
        facts = {"changed": answer.changed, "blocked": list(answer.blocked), "dry_run": dry}
        call.screen.json(facts)
    else:
        _say(call, change, answer, dry=dry)
    if _reasons(answer) and not answer.changed:
        raise CommandError("None of these jobs can be requeued.")


def _say(call: Call, change: Change, answer: Answer, *, dry: bool) -> None:
    would_be = "would be " if dry else ""
    call.screen.say(f"{counted(answer.changed, 'job')} {would_be}{change.done}.")
    if answer.blocked:
        left = _left(change.left, len(answer.blocked), dry=dry)
        call.screen.say(f"{left}: {listed(answer.blocked)}")
    for reason in _reasons(answer):
        call.screen.say(f"- {reason}")


def _reasons(answer: Answer) -> list[str]:
    """Return why dead jobs could not be requeued, each reason once."""
    errors = answer.reasons.values() if isinstance(answer, JobChange) else ()
    return list(dict.fromkeys(map(str, errors)))[:MOST_REASONS]


def _left(which: str, count: int, *, dry: bool) -> str:
    was, it = ("was", "it is") if count == 1 else ("were", "they are")
    return f"{which.format(counted(count, 'job'))} {'would be' if dry else was} left as {it}"
