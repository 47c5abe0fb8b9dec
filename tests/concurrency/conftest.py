"""Dispatchers to start, what they ran, and the sums that must come out."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from django_zizq import integrity
from tests.concurrency.deadlocks import no_deadlocks
from tests.concurrency.forking import Forker
from tests.concurrency.processes import DispatcherProcess
from tests.concurrency.records import FOLDER_VARIABLE, Run, gate, read_runs
from tests.concurrency.stored import assert_in_use_is_exact
from tests.concurrency.takers import Taker
from tests.concurrency.waiting import DEADLINE_S, wait_until


@dataclass
class Records:
    """What the handlers wrote down."""

    folder: Path

    def runs(self, *numbers: int) -> list[Run]:
        """Return the runs in the order of their starts: of the jobs *numbers*, or all."""
        return [run for run in read_runs(self.folder) if not numbers or run.n in numbers]

    def started(self) -> list[int]:
        """Return the numbers of the jobs in the order in which they started."""
        return [run.n for run in self.runs()]

    def wait_for_starts(self, count: int, *, seconds: float = DEADLINE_S) -> list[Run]:
        """Wait until so many runs have started and return all there are."""
        wait_until(lambda: len(self.runs()) >= count, f"{count} jobs started", seconds=seconds)
        return self.runs()

    def wait_for_ends(self, count: int, *, seconds: float = DEADLINE_S) -> list[Run]:
        """Wait until so many runs have ended and return all there are."""
        wait_until(
            lambda: sum(run.ended is not None for run in self.runs()) >= count,
            f"{count} jobs ended",
            seconds=seconds,
        )
        return self.runs()

    def open_gate(self, n: int | None = None) -> None:
        """Let the held job *n*, or every one, go on."""
        gate(n).touch()


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """The folder that handlers write to, in this process and in those it starts."""
    folder = tmp_path / "records"
    folder.mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return Records(folder)


StartDispatcher = Callable[..., DispatcherProcess]


def _starter(
    environment: dict[str, str], tmp_path: Path, forker: Forker | None = None
) -> Iterator[Callable[..., DispatcherProcess]]:
    started: list[DispatcherProcess] = []

    def start(
        *arguments: str, environ: dict[str, str] | None = None, **settings: Any
    ) -> DispatcherProcess:
        special = {
            "DJANGO_SETTINGS_MODULE": "tests.concurrency.settings",
            "ZIZQ_TEST_PARENT": str(os.getpid()),
            "ZIZQ_TEST_SETTINGS": json.dumps(settings),
        }
        log = tmp_path / f"dispatcher-{len(started)}.log"
        # What the environment says of Python itself counts from the start of a process only.
        process = DispatcherProcess(
            list(arguments),
            os.environ | environment | special | (environ or {}),
            log,
            None if environ else forker,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.clean_up()


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    """What forks dispatchers, for the whole run."""
    forker = Forker(
        os.environ
        | {"ZIZQ_TEST_DATABASE_URL": settings.DATABASE_URL, "ZIZQ_TEST_PARENT": str(os.getpid())}
    )
    yield forker
    forker.close()


@pytest.fixture
def start_dispatcher(
    process_environment: dict[str, str], records: Records, tmp_path: Path, forker: Forker
) -> Iterator[StartDispatcher]:
    """Start ``zizq_dispatch`` on this test's database.

    Positional arguments are its own, keywords are keys of ``ZIZQ`` (durations in seconds).
    With an ``environ`` it is a Python of its own, otherwise a fork.
    """
    yield from _starter(process_environment, tmp_path, forker)


@pytest.fixture
def start_dispatcher_elsewhere(records: Records, tmp_path: Path) -> Iterator[StartDispatcher]:
    """Start ``zizq_dispatch`` on the database that ``environ`` names."""
    yield from _starter({}, tmp_path)


@pytest.fixture
def sound(transactional_db: None) -> Iterator[None]:
    """What must be so after every test, whatever won."""
    with no_deadlocks():
        yield
    assert_in_use_is_exact()
    taker = Taker()
    assert list(integrity.check(taker.db, repair=False, now=taker.db.clock())) == []
