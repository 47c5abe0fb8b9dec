"""``manage.py zizq_dispatch``: run jobs."""

from __future__ import annotations

import argparse
from datetime import timedelta
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import router

from django_zizq.console import configure_logging, progress_bar, tables_required
from django_zizq.core.names import name_fault
from django_zizq.models import Job
from django_zizq.options import Options
from django_zizq.supervisor import run_here, run_processes


class Command(BaseCommand):
    help = (
        "Run queued jobs as fast as their budgets allow, until told to stop. Any number of "
        "dispatchers may run, on any number of machines, against one database."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--queue", type=_queues, metavar="A,B", help="Serve these queues only (default: all).")
        add("--threads", type=_count, default=8, help="Jobs run at once per process (default: 8).")
        add("--processes", type=_count, default=1, help="Dispatcher processes (default: 1).")
        add(
            "--prefetch",
            type=_number,
            help='Unbound jobs claimed beyond the free threads (default: ZIZQ["PREFETCH"]).',
        )
        add(
            "--poll-interval",
            type=_interval,
            metavar="SECONDS",
            help='The longest sleep when nothing wakes it (default: ZIZQ["POLL_INTERVAL"]).',
        )
        add(
            "--grace",
            type=_seconds,
            metavar="SECONDS",
            help='How long running jobs may go on after SIGTERM (default: ZIZQ["GRACE"]).',
        )
        add("--until-idle", action="store_true", help="End when no job is left that could run.")
        add("--once", action="store_true", help="Claim once, run what that gave, and end.")

    def handle(self, *args: Any, **options: Any) -> None:
        configure_logging(options["verbosity"], self.stderr)
        self.stdout.ending = ""  # else every step of the progress bar is a line of its own
        chosen = Options(
            using=router.db_for_write(Job),
            queues=options["queue"],
            threads=options["threads"],
            prefetch=options["prefetch"],
            poll_interval=options["poll_interval"],
            grace=options["grace"],
            until_idle=options["until_idle"],
            once=options["once"],
        )
        with (
            tables_required(chosen.using),
            progress_bar(self.stdout, shown=options["until_idle"]) as progress,
        ):
            if options["processes"] == 1:
                run_here(chosen, progress=progress)
                return
            prepare = partial(configure_logging, options["verbosity"])
            code = run_processes(chosen, options["processes"], prepare=prepare, progress=progress)
        if code:
            raise SystemExit(code)


def _queues(text: str) -> frozenset[str]:
    names = text.split(",")
    for name in names:
        if fault := name_fault(name):
            raise argparse.ArgumentTypeError(f"queue {name!r} {fault}")
    return frozenset(names)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 10000")
    return int(text)


def _number(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _seconds(text: str) -> timedelta:
    try:
        seconds = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        seconds = timedelta(-1)
    if seconds < timedelta(0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def _interval(text: str) -> timedelta:
    interval = _seconds(text)
    if interval < timedelta(milliseconds=10):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, at least 0.01")
    return interval
