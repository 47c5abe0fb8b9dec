"""The table of what was measured, and the same as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django
import psycopg
from django.db import connections
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.figures import Mark, Measure, Of, Unit

WIDTH = 100
_VERDICTS = {True: "met", False: "missed", None: ""}
_STYLES = {"met": "green", "missed": "bold red", "": ""}
_DIGITS = {Unit.TIME: 2, Unit.PER_SECOND: 2, Unit.MEMORY: 1}


@dataclass(frozen=True, slots=True)
class Line:
    """A measure as it is shown."""

    name: str
    figure: str
    bound: str
    ratio: str
    mark: str
    verdict: str


def surroundings() -> dict[str, Any]:
    """Return what the figures depend on: the machine, the versions and the server's durability."""
    with connections["server"].cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('server_version'), current_setting('fsync'), "
            "current_setting('synchronous_commit'), current_setting('shared_buffers')"
        )
        version, fsync, synchronous_commit, shared_buffers = cursor.fetchone()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "django": django.get_version(),
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        "postgresql": version,
        "fsync": fsync,
        "synchronous_commit": synchronous_commit,
        "shared_buffers": shared_buffers,
    }


def line_of(measure: Measure) -> Line:
    """Return the measure in words and figures."""
    return Line(
        measure.name,
        _amount(measure.figure, measure.unit),
        _bound(measure),
        _ratio(measure.ratio, measure.unit),
        _mark(measure.mark, measure.unit),
        _VERDICTS[measure.passed],
    )


def show(measures: Sequence[Measure], about: dict[str, Any]) -> None:
    """Print the table, *WIDTH* columns wide."""
    console = Console(width=WIDTH, highlight=False)
    table = Table(width=WIDTH, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("measure", ratio=1)
    for heading in ("figure", "bound", "ratio", "mark"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    group = None
    for measure in measures:
        if measure.group != group:
            group = measure.group
            table.add_section()
            table.add_row(f"[bold]{group}[/]")
        line = line_of(measure)
        verdict = Text(line.verdict, style=_STYLES[line.verdict])
        table.add_row(f"  {line.name}", line.figure, line.bound, line.ratio, line.mark, verdict)
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in about.items()), style="dim")


def write(path: Path, measures: Sequence[Measure], about: dict[str, Any]) -> None:
    """Write everything, every round's figures included."""
    content = {"about": about, "measures": [measure.as_json() for measure in measures]}
    path.write_text(json.dumps(content, indent=2) + "\n")


def _amount(value: float, unit: Unit) -> str:
    text = f"{value:,.{_DIGITS.get(unit, 0)}f}".replace(",", " ")
    return f"{text}/s" if unit is Unit.RATE else f"{text} {unit}".rstrip()


def _bound(measure: Measure) -> str:
    if measure.bound is None:
        return ""
    return f"{measure.bound_name} {_amount(measure.bound, measure.unit)}"


def _ratio(value: float | None, unit: Unit) -> str:
    if value is None:
        return ""
    return f"{value:.1%}".replace("%", " %") if unit is Unit.RATE else f"{value:.2f} x"


def _mark(mark: Mark | None, unit: Unit) -> str:
    if mark is None:
        return ""
    limits = ((">=", mark.least), ("<=", mark.most))
    return " ".join(
        f"{sign} {_limit(limit, mark.of, unit)}" for sign, limit in limits if limit is not None
    )


def _limit(limit: float, of: Of, unit: Unit) -> str:
    if of is not Of.RATIO:
        return f"{limit:,g}".replace(",", " ")
    return f"{limit:.0%}".replace("%", " %") if unit is Unit.RATE else f"{limit:g} x"
