"""``manage.py demo``: real orders, real dispatchers, and the limits as the services saw them."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.utils import timezone
from rich.console import Console
from rich.live import Live

from django_zizq.models import Budget, Job
from shop import processes
from shop.management.commands.load_orders import load
from shop.models import Order, ReceiptKind, ServiceCall
from shop.ordering import place_orders
from shop.report import exit_code, make_report, render
from shop.timeline import Snapshot, frame, look

ORDERS: Final = Path(__file__).parents[2] / "data" / "orders.csv"
ADDRESS: Final = "127.0.0.1:8000"
PROCESSES: Final = 2
WIDTH: Final = 100
FRAME_SECONDS: Final = 0.2
LINE_SECONDS: Final = 2.0


class Command(BaseCommand):
    help = (
        "Take orders over from a file, run their jobs in dispatchers of their own, show how the "
        "budgets hold, and measure it. Ends with 1 where a limit was exceeded or a job not done."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--orders", type=_count, metavar="N", help="Take the first N orders only.")
        add(
            "--serve",
            nargs="?",
            const=ADDRESS,
            metavar="ADDRESS:PORT",
            help=f"Leave the site, with a dispatcher, up afterwards (on {ADDRESS}).",
        )
        add(
            "--clear",
            action="store_true",
            help="Delete the orders and jobs that the database of DATABASE_URL holds.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            code = self._run(**options)
        except KeyboardInterrupt:
            code = 128 + signal.SIGINT
        sys.exit(code)

    def _run(self, *, orders: int | None, serve: str | None, clear: bool, **_: Any) -> int:
        console = self._console()
        call_command("migrate", verbosity=0)
        _start_afresh(allowed=clear or "DATABASE_URL" not in os.environ)
        taken = load(ORDERS)[:orders]
        enqueued = len(place_orders(taken))
        console.print(
            f"{len(taken)} orders of {ORDERS.name}, {enqueued} jobs. "
            f"{PROCESSES} dispatcher processes on {connection.display_name}.\n"
        )
        began = monotonic()
        with processes.dispatcher("--until-idle", f"--processes={PROCESSES}") as process:
            _watch(console, process, _expected(taken))
        report = make_report(enqueued=enqueued, seconds=monotonic() - began)
        console.print()
        console.print(render(report))
        if serve:
            _serve(console, serve)
        return exit_code(report)

    def _console(self) -> Console:
        self.stdout.ending = ""  # else Django ends what is written with a newline
        out: Any = self.stdout
        console = Console(file=out, highlight=False)
        console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
        return console


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of orders")
    return int(text)


def _start_afresh(*, allowed: bool) -> None:
    """Empty the shop and the queue, where they are the demo's own or that is asked for."""
    if not allowed and (Order.objects.exists() or Job.objects.exists()):
        raise CommandError(
            "The database of DATABASE_URL holds orders or jobs, and the demo starts afresh. "
            "Pass --clear to delete them."
        )
    Order.objects.all().delete()
    ServiceCall.objects.all().delete()
    Job.objects.all().delete()
    Budget.objects.all().delete()


def _expected(orders: Sequence[Order]) -> dict[str, int]:
    """Return how many calls there will be to each service."""
    with_pdf = sum(order.receipt == ReceiptKind.PDF for order in orders)
    every = len(orders)
    return {"stripe": every, "emails": every, "pdf": with_pdf, "images": every}


def _watch(console: Console, process: subprocess.Popen[bytes], totals: dict[str, int]) -> None:
    """Show what is going on until *process* ends: a picture, or lines where that is piped."""
    since = timezone.now()

    def snapshots(seconds: float) -> Iterator[Snapshot]:
        while not processes.ends_within(process, seconds):
            yield look(totals, since=since)
        yield look(totals, since=since)

    if console.is_terminal:
        with Live(frame(look(totals, since=since)), console=console, auto_refresh=False) as live:
            for snapshot in snapshots(FRAME_SECONDS):
                live.update(frame(snapshot), refresh=True)
        return
    console.print(look(totals, since=since).heading(), soft_wrap=True)
    done = False
    for snapshot in snapshots(LINE_SECONDS):
        if not done:
            console.print(snapshot.line(), soft_wrap=True)
        done = snapshot.completed == snapshot.jobs


def _serve(console: Console, address: str) -> None:
    users = get_user_model().objects
    if not users.filter(username="demo").exists():
        users.create_superuser("demo", password="demo")
    url = f"http://{address if ':' in address else f'127.0.0.1:{address}'}/"
    console.print(f"\nThe shop: {url}\nThe admin: {url}admin/ (demo, demo)\nCtrl-C ends it.\n")
    processes.serve(address)
