"""Calling a command as a test does, as a person at a terminal does, and as a shell does."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

ROOT = Path(__file__).resolve().parents[2]

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A terminal that remembers what was written to it, or that a person types at."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What can be read on it."""
        return _ESCAPES.sub("", self.getvalue()).splitlines()


def call(command: str, *arguments: object, stdout: io.StringIO | None = None) -> str:
    """Run a command and return what it printed."""
    out = stdout or io.StringIO()
    call_command(command, *map(str, arguments), stdout=out)
    return out.getvalue()


def call_json(command: str, *arguments: object) -> Any:
    """Run a command with --json and return what a program reads."""
    return json.loads(call(command, *arguments, "--json"))


def refusal(command: str, *arguments: object) -> str:
    """Run a command that the library refuses, and return why."""
    with pytest.raises(CommandError) as caught:
        call(command, *arguments)
    assert caught.value.returncode == 1
    return str(caught.value)


def misuse(command: str, *arguments: object) -> str:
    """Run a command with wrong arguments, and return what it says of them."""
    with pytest.raises(CommandError, match=r"^Error: ") as caught:
        call(command, *arguments)
    return str(caught.value).removeprefix("Error: ")


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table that went into a pipe."""
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def manage(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with its output and its errors in pipes."""
    return subprocess.run(
        [sys.executable, "-m", "django", *arguments],
        cwd=ROOT,
        env={**environment, "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
