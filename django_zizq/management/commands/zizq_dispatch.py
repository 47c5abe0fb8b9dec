"""``manage.py zizq_dispatch``: run jobs."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import router

from django_zizq.console import (
    configure_logging,
    progress_bar,
    refusal_in_a_line,
    require_tables,
)
from django_zizq.management.arguments import count, interval, number, queues, seconds
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
        parser.epilog = "-v 0 logs errors only, -v 2 a line for every job."
        add("--queue", type=queues, metavar="A,B", help="Serve these queues only (default: all).")
        threads = "Jobs run at once in a process (default: 8)."
        add("--threads", type=count, default=8, metavar="N", help=threads)
        processes = "Dispatcher processes (default: 1)."
        add("--processes", type=count, default=1, metavar="N", help=processes)
        add(
            "--prefetch",
            type=number,
            metavar="N",
            help='Unthrottled jobs claimed beyond the free threads (default: ZIZQ["PREFETCH"]).',
        )
        add(
            "--poll-interval",
            type=interval,
            metavar="SECONDS",
            help='The longest sleep when nothing wakes it (default: ZIZQ["POLL_INTERVAL"]).',
        )
        add(
            "--grace",
            type=seconds,
            metavar="SECONDS",
            help='How long running jobs may go on after SIGTERM, Ctrl-C (default: ZIZQ["GRACE"]).',
        )
        add(
            "--until-idle",
            action="store_true",
            help="End when nothing is left that could run; waits for budgets, but not for "
            "schedules and pauses without end.",
        )
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
        require_tables(chosen.using)
        shown = options["until_idle"]
        with refusal_in_a_line(), progress_bar(self.stdout, shown=shown) as progress:
            if options["processes"] == 1:
                run_here(chosen, progress=progress)
                return
            prepare = partial(configure_logging, options["verbosity"])
            code = run_processes(chosen, options["processes"], prepare=prepare, progress=progress)
        if code:
            raise SystemExit(code)
