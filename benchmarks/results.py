"""The results as a file to read: a section for each measure, replaced when it is measured anew."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import Measure
from benchmarks.report import Line, line_of

_TITLE = """# Results

Written by `./dev bench --results`; see [README.md](README.md) for what is measured and how. Each
section says when and on what it was measured; the figures are medians of the rounds.
"""
_HEADINGS = ("measure", "figure", "bound", "ratio", "mark", "verdict")
_SECTION = re.compile(r"^## (.+)\n((?:(?!^## ).*\n?)*)", re.MULTILINE)


def write(
    path: Path,
    found: Mapping[str, Sequence[Measure]],
    about: Mapping[str, Any],
    *,
    order: Sequence[str],
) -> None:
    """Write what was *found*, by measure, and keep the sections of what was not measured."""
    sections = dict(_SECTION.findall(path.read_text())) if path.exists() else {}
    sections |= {name: _section(measures, about) for name, measures in found.items()}
    parts = [f"## {name}\n{sections[name]}".rstrip() + "\n" for name in order if name in sections]
    path.write_text("\n".join([_TITLE, *parts]))


def _section(measures: Sequence[Measure], about: Mapping[str, Any]) -> str:
    rows = [_HEADINGS, ("---", *["---:"] * 4, "---")]
    rows += [_row(measure.group, line_of(measure)) for measure in measures]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    rounds = max(len(measure.figures) for measure in measures)
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    return f"\n{table}\n\nRounds: {rounds}. {facts}.\n"


def _row(group: str, line: Line) -> tuple[str, ...]:
    verdict = f"**{line.verdict}**" if line.verdict == "missed" else line.verdict
    return (f"{group}: {line.name}", line.figure, line.bound, line.ratio, line.mark, verdict)
