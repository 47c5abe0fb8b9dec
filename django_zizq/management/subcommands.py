"""Subcommands: their parsers, one call of one of them, and what becomes of a refusal.

Exit codes: 0 done, 1 refused (what a ``ZizqError`` says), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, models, router

from django_zizq.console import require_tables
from django_zizq.core.errors import ZizqError
from django_zizq.dialect import is_outage
from django_zizq.management.tables import Screen

_SIGNED: Final = re.compile(r"-\.?\d")

INTERRUPTED: Final = 130


class _Parser(CommandParser):
    """The parser of a subcommand.

    Nothing is abbreviated, since a slip may be costly, and ``-2h`` is a value, not an option.
    """

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **kwargs)
        self._negative_number_matcher = _SIGNED  # as argparse has it itself from Python 3.14 on


@dataclass(frozen=True)
class Call:
    """One call of a subcommand; *refuse* ends it with what is wrong with its usage."""

    using: str
    screen: Screen
    options: dict[str, Any]
    refuse: Callable[[str], NoReturn]

    def __getitem__(self, option: str) -> Any:
        return self.options[option]


Run = Callable[[Call], None]


class Subcommands:
    """The subcommands of one command, as they are added to its parser."""

    def __init__(self, parser: CommandParser) -> None:
        self._parsers = parser.add_subparsers(
            metavar="SUBCOMMAND", required=True, parser_class=_Parser
        )

    def add(
        self, name: str, run: Run, *, help: str, usage: str, examples: str
    ) -> argparse.ArgumentParser:
        """Add a subcommand that answers by *run*, with what every one has."""
        parser = self._parsers.add_parser(
            name, help=help, description=help, epilog=f"examples:\n{_indented(examples)}"
        )
        parser.usage = f"{parser.prog} {usage}"
        parser.set_defaults(run=run, refuse=parser.error)
        parser.add_argument("--json", action="store_true", help="Print JSON, for a program.")
        _add_base_options(parser)
        return parser


def run_subcommand(
    command: BaseCommand, model: type[models.Model], options: dict[str, Any]
) -> None:
    """Run what was parsed, on the database that *model* is written to."""
    using = router.db_for_write(model)
    screen = Screen(command, as_json=options["json"], plain=options["no_color"])
    with in_one_line(using):
        require_tables(using)
        options["run"](Call(using, screen, options, options["refuse"]))
        screen.flush()


@contextmanager
def in_one_line(using: str) -> Iterator[None]:
    """Let refusals, outages and interruptions inside end a command with a line of their own."""
    try:
        yield
    except ZizqError as error:
        raise CommandError(str(error), returncode=1) from error
    except Error as error:
        if not is_outage(error):
            raise
        raise CommandError(f"The database '{using}' is out of reach: {error}") from error
    except BrokenPipeError:
        # As the Python documentation says: else the flush at the end of the process fails again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise CommandError("Interrupted.", returncode=INTERRUPTED) from None


def _add_base_options(parser: argparse.ArgumentParser) -> None:
    """Let Django's own options stand behind the subcommand as well as before it."""
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for option in ("--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(
            option, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
    parser.add_argument(
        "-v",
        "--verbosity",
        type=int,
        choices=(0, 1, 2, 3),
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )


def _indented(examples: str) -> str:
    return "\n".join(f"  manage.py {line.strip()}" for line in examples.strip().splitlines())
