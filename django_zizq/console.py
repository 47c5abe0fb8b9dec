"""What the commands show: log lines, and progress on a terminal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connections
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from django_zizq.core.errors import ZizqError
from django_zizq.models import Job

_LEVELS = {0: logging.ERROR, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


def configure_logging(verbosity: int, stream: Any = None) -> None:
    """Print the log of django_zizq, unless the site's LOGGING setting takes care of it.

    To the standard error where no *stream* is given.
    """
    logger = logging.getLogger("django_zizq")
    if not logger.hasHandlers():
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s"))
        logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(_LEVELS[verbosity])


def require_tables(using: str) -> None:
    """Raise ``CommandError`` where the app was not migrated; say nothing of an outage."""
    try:
        found = Job._meta.db_table in connections[using].introspection.table_names()
    except Error:
        return  # the dispatcher waits until the database is there
    finally:
        if not connections[using].in_atomic_block:  # a caller's transaction must survive this
            connections[using].close()
    if not found:
        raise CommandError(
            f"The tables of django_zizq are missing in the database '{using}': "
            "run 'manage.py migrate' first."
        )


@contextmanager
def refusal_in_a_line() -> Iterator[None]:
    """Let what a ``ZizqError`` says inside be the error of the command."""
    try:
        yield
    except ZizqError as error:
        raise CommandError(str(error)) from None


@contextmanager
def progress_bar(stream: Any, *, shown: bool) -> Iterator[Callable[[int], None] | None]:
    """Show how many of the ready jobs are done, where *stream* is a terminal; else nothing.

    Yields the function to call with the number so far, or None.
    """
    if not shown or not stream.isatty():
        yield None
        return
    with bar(stream, total=Job.objects.ready().count()) as show:
        yield show


@contextmanager
def bar(stream: Any, *, total: int, transient: bool = False) -> Iterator[Callable[[int], None]]:
    """Show how many of *total* jobs are done on the terminal *stream*.

    Yields the function to call with the number so far. A *transient* bar is wiped at the end.
    """
    columns = (
        TextColumn("jobs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(file=stream), transient=transient) as progress:
        task = progress.add_task("jobs", total=total)

        def show(done: int) -> None:
            total = progress.tasks[0].total or 0
            progress.update(task, completed=done, total=max(total, done))

        yield show
