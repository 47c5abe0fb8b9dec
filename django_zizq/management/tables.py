"""What a command prints: tables, lines and JSON, for a person at a terminal or for a pipe.

A terminal gets colours, and columns that fold at its width. A pipe gets plain text: a line for
each row, as wide as it must be, so that nothing is cut off.
"""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from django.core.management.base import BaseCommand
from rich.console import Console, JustifyMethod
from rich.measure import measure_renderables
from rich.table import Table
from rich.text import Text

from django_zizq.console import bar
from django_zizq.management.words import on_a_line, printable

_ANY_WIDTH: Final = 100_000
_GAP: Final = 2
_FOLDED: Final = 12
"""The least that a column which folds is narrowed to, while there are others."""


@dataclass(frozen=True)
class Column:
    """A column of a table; one that *folds* is the first to be narrowed at a terminal."""

    title: str
    is_number: bool = False
    folds: bool = False


Cell = str | int | Text


class Screen:
    """Where a command answers."""

    def __init__(self, command: BaseCommand, *, as_json: bool, plain: bool) -> None:
        self.as_json = as_json
        self._stdout, self._stderr = command.stdout, command.stderr
        self._stdout.ending = ""  # else each part of what rich writes is a line of its own
        self.is_terminal = self._stdout.isatty()
        self._plain = plain or not self.is_terminal

    def say(self, text: str = "") -> None:
        """Print a line, or several, as they are."""
        self._stdout.write(f"{text}\n")

    def explain(self, text: str) -> None:
        """Print lines, at a terminal folded at its width."""
        for line in printable(text).split("\n"):
            if self.is_terminal and len(line) > self._console().width:
                hang = " " * (len(line) - len(line.lstrip(" -!")))
                line = textwrap.fill(line, self._console().width, subsequent_indent=hang)
            self.say(line)

    def flush(self) -> None:
        """Let the pipe have everything, so that one which is closed is noticed here."""
        self._stdout.flush()

    def note(self, text: str) -> None:
        """Print a line beside the answer, on the standard error."""
        self._stderr.write(text, str)

    def ask(self, question: str) -> None:
        """Print a question, where the answer in a file does not swallow it."""
        self._stderr.write(question, str, ending="")
        self._stderr.flush()

    def json(self, value: Mapping[str, Any]) -> None:
        """Print *value* for a program."""
        self.say(json.dumps(value, indent=2))

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """Print a table."""
        console = self._console()
        cells = [[_cell(cell) for cell in row] for row in rows]
        widths = _widths(columns, cells, console)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for column, width in zip(columns, widths, strict=True):
            justify: JustifyMethod = "right" if column.is_number else "left"
            table.add_column(column.title, justify=justify, width=width, overflow="fold")
        for row in cells:
            table.add_row(*row)
        with console.capture() as capture:
            console.print(table)
        for line in capture.get().splitlines():
            self.say(line.rstrip())

    @contextmanager
    def progress(self, total: Callable[[], int]) -> Iterator[Callable[[int], None] | None]:
        """Show a bar at a terminal, over *total* jobs; yield what to tell how many are done."""
        if self.as_json or not self.is_terminal:
            yield None
            return
        with bar(self._stdout, total=total(), transient=True) as show:
            yield show

    def _console(self) -> Console:
        stdout: Any = self._stdout
        width = Console(file=stdout).width if self.is_terminal else _ANY_WIDTH
        if self._plain:
            return Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
        return Console(file=stdout, width=width)


def _cell(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(on_a_line(str(cell)))


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], console: Console
) -> list[int]:
    """Return how wide the columns are, so that no line is wider than the terminal.

    What is too much is taken from the titles of numbers first, then from the columns that fold,
    then from the widest, in the middle of a word if it must be.
    """
    measured = [
        measure_renderables(console, console.options, [Text(column.title), *cells])
        for column, *cells in zip(columns, *rows, strict=True)
    ]
    widths = [measure.maximum for measure in measured]
    places = range(len(columns))
    excess = sum(widths) + _GAP * (len(columns) - 1) - console.width
    for fold in (False, True):
        for place in places:
            least = _FOLDED if fold else measured[place].minimum
            takes = columns[place].folds if fold else columns[place].is_number
            cut = max(0, min(excess, widths[place] - least)) if takes else 0
            widths[place] -= cut
            excess -= cut
    while excess > 0 and max(widths) > 1:
        widths[max(places, key=widths.__getitem__)] -= 1
        excess -= 1
    return widths
