"""The demo itself: real dispatchers, on a database of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection
from pytest_django import DjangoDbBlocker

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 180


@pytest.fixture
def database_url(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """An empty database of the kind that the suite runs on."""
    if connection.vendor == "sqlite":
        yield f"sqlite:///{tmp_path}/demo.sqlite3"
        return
    name = f"zizq_demo_{os.getpid()}"
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    yield urlsplit(settings.DATABASE_URL)._replace(path=f"/{name}").geturl()
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name}")


def demo(database_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DATABASE_URL": database_url, "PYTHONPATH": str(ROOT)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    return subprocess.run(
        [sys.executable, ROOT / "example_site/manage.py", "demo", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.direct("the settings of the demo, which listens")
def test_the_demo_keeps_every_limit_and_loses_no_job(database_url: str) -> None:
    ended = demo(database_url, "--orders", "40")

    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("40 orders of orders.csv, 120 jobs.")
    assert connection.display_name in lines[0]
    assert any("jobs done" in line.lower() for line in lines)
    for budget, limit in {
        "stripe": "3 while in flight",
        "emails": "30 per second, burst 10",
        "pdf": "2 while in flight",
    }.items():
        (row,) = (line for line in lines if line.startswith(f" {budget} ") and limit in line)
        assert row.rstrip().endswith("kept")
    assert "120 enqueued, 120 completed, 0 failed, 0 lost" in ended.stdout
    assert "Every limit was kept and no job was lost." in ended.stdout

    again = demo(database_url, "--orders", "1")

    assert again.returncode == 1
    assert "Pass --clear to delete them." in again.stderr
