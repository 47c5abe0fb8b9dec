"""The README is true: its snippets run, its walkthrough is followed, its tables match the code.

How its blocks are read:

- ``python`` blocks of a section run in order, in one namespace, in the test's database. A line
  that ends in ``# -> VALUE`` must have that value, one that ends in ``# raises ERROR`` must raise
  that error, and one that begins with ``await`` is awaited. A ``text`` block is what the one above
  it prints. The commands of an ``sh`` block there
  are called in the same database; 4712 stands for the id of the last job.
- A ``python`` block that begins with ``# settings.py`` is the settings of some site.
- A ``python`` block that begins with the path of another file is a part of the project that "A
  first job" starts. That section and "Testing your jobs" are followed command by command in a
  folder of their own; a ``text`` block is what the command above it prints.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import csv
import inspect
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.core.management import call_command, load_command_class
from django.core.management.base import BaseCommand
from django.test import override_settings

import django_zizq
from django_zizq import (
    Backoff,
    BudgetPatch,
    BudgetPolicy,
    JobOptions,
    JobStatus,
    Retention,
    TimeBased,
    UniqueWhile,
    ZizqError,
    registry,
)
from django_zizq.checks import check_settings
from django_zizq.conf import MAX_BUDGETS_VARIABLE, Settings
from django_zizq.core import errors
from django_zizq.core.tokens import Pool
from django_zizq.management.commands.zizq_dispatch import Command
from django_zizq.models import Job

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")

FOLLOWED = ("A first job", "Testing your jobs")
NOT_RUN = {
    # The environment of the suite takes their place.
    "python3 -m venv .venv",
    ". .venv/bin/activate",
    "pip install django-zizq",
    "pip install pytest-django",
}
PATIENCE_S = 120

SQLITE, POSTGRESQL = "django.db.backends.sqlite3", "django.db.backends.postgresql"
GLOSSARY = (
    "budget, strategy, allocation, burst, capacity, duration, cost, binding, debit, release, "
    "refill, park, enqueue, dispatch, in flight, lane, claim"
)


@dataclass(frozen=True)
class Block:
    """A fenced block; *line* is that of its first line in the README."""

    language: str
    text: str
    section: str
    line: int

    @property
    def path(self) -> str | None:
        """The file that the block is, where its first line says so."""
        found = re.match(r"# ([\w/]+\.py)\n", self.text)
        return found[1] if found and self.language == "python" else None


def _read_blocks() -> list[Block]:
    blocks: list[Block] = []
    section, language, start, lines = "", None, 0, list[str]()
    for number, line in enumerate(TEXT.splitlines(), start=1):
        if language is None and line.startswith("```"):
            language, start, lines = line[3:], number + 1, []
        elif line == "```":
            assert language is not None
            text = "".join(f"{one}\n" for one in lines)
            blocks.append(Block(language, text, section, start))
            language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("## "):
            section = line[3:]
    assert language is None, f"the block at line {start} has no end"
    return blocks


BLOCKS = _read_blocks()
SNIPPETS = [block for block in BLOCKS if block.language == "python" and block.path is None]
CALLED = [
    block
    for block in BLOCKS
    if block.language == "sh" and block.section in {snippet.section for snippet in SNIPPETS}
]
SITES = [block for block in BLOCKS if block.path == "settings.py"]


def section_text(title: str) -> str:
    _, begin, rest = TEXT.partition(f"\n## {title}\n")
    assert begin, f"the README has no section '{title}'"
    return rest.partition("\n## ")[0]


def table(first_header: str) -> list[list[str]]:
    """Return the rows of the one table whose first header this is, without marks of code."""
    found = []
    rows: list[list[str]] = []
    for line in [*TEXT.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
            continue
        if rows:
            assert {len(row) for row in rows} == {len(rows[0])}, f"ragged table: {rows[0]}"
            if rows[0][0] == first_header:
                found.append(rows[2:])
        rows = []
    assert len(found) == 1, f"the README has {len(found)} tables headed '{first_header}'"
    return found[0]


def first_column(first_header: str) -> list[str]:
    return [row[0] for row in table(first_header)]


# What is executed


def test_every_block_is_of_a_kind_that_some_test_reads() -> None:
    for block in BLOCKS:
        assert block.language in {"python", "sh", "text", "ini"}, f"line {block.line}"
        if block.language == "sh":
            assert block.section in {"Try it", *FOLLOWED} or block in CALLED, f"line {block.line}"
        if block.path is not None and block.path != "settings.py":
            assert block.section in FOLLOWED, f"line {block.line}"
        if block in SNIPPETS:
            assert block.section not in FOLLOWED, f"line {block.line}"


@pytest.mark.django_db
@pytest.mark.parametrize("section", dict.fromkeys(block.section for block in SNIPPETS))
def test_the_snippets_of_a_section_run(section: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry._registry, "types", dict(registry._registry.types))
    name = "readme_" + "_".join(section.lower().split())
    namespace: dict[str, Any] = {"__name__": name}
    printed = io.StringIO()
    for block in BLOCKS:
        if block.section != section:
            continue
        if block in SNIPPETS:
            with contextlib.redirect_stdout(printed := io.StringIO()):
                _run(block, namespace)
        elif block in CALLED:
            for line in block.text.splitlines():
                _call(line)
        elif block.language == "text":
            left = _unseen(block.text.splitlines(), printed.getvalue().splitlines())
            assert not left, printed.getvalue()


def _call(line: str) -> None:
    python, manage, command, *arguments = shlex.split(line)
    assert (python, manage) == ("python", "manage.py")
    last = str(Job.objects.latest("pk").pk)
    arguments = [last if argument == "4712" else argument for argument in arguments]
    call_command(command, *arguments, stdout=io.StringIO())


def _run(block: Block, namespace: dict[str, Any]) -> None:
    """Run a snippet, its expectations checked and its lines numbered as in the README."""
    lines = [_expecting(line) for line in block.text.splitlines()]
    source = "\n" * (block.line - 1) + "\n".join(lines) + "\n"
    namespace |= {"_same": _same, "_raises": _raises, "_wait_for": async_to_sync(_settle)}
    exec(compile(source, str(README), "exec", dont_inherit=True), namespace)


def _expecting(line: str) -> str:
    code, mark, value = line.partition("  # -> ")
    if mark:
        return f"_same({code}, {value})"
    code, mark, error = line.partition("  # raises ")
    if mark:
        return f"with _raises({error!r}): {code}"
    code = line.removeprefix("await ")
    return line if code == line else f"_wait_for({code})"


async def _settle(value: Awaitable[Any]) -> Any:
    return await value


def _same(value: object, expected: object) -> None:
    assert value == expected


def _raises(name: str) -> Any:
    error = getattr(django_zizq, name, None) or getattr(builtins, name)
    return pytest.raises(error, check=lambda raised: type(raised) is error)


@pytest.mark.parametrize("block", SITES, ids=lambda block: f"line {block.line}")
def test_the_settings_shown_pass_the_checks(block: Block) -> None:
    namespace: dict[str, Any] = {}
    _run(block, namespace)
    with override_settings(ZIZQ=namespace["ZIZQ"]):
        assert check_settings() == []


class Project:
    """The site that a reader of the README starts, in a folder of its own."""

    def __init__(self, folder: Path, database: dict[str, str]) -> None:
        self.folder = folder
        self._database = database
        # As if installed: the commands of this environment, and the package beside the tests.
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DATABASE_URL", "DJANGO_", "PYTEST_", "ZIZQ_"))
        }
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = kept | {"PATH": path, "PYTHONPATH": str(ROOT)}

    def follow(self, section: str) -> None:
        """Do what the section says, block by block."""
        blocks = [block for block in BLOCKS if block.section == section]
        for block, after in zip(blocks, [*blocks[1:], None], strict=True):
            if block.path is not None:
                self._write(block.path, block)
            elif block.language == "sh":
                shown = after.text if after is not None and after.language == "text" else ""
                self._type(block.text.splitlines(), shown.splitlines())

    def _write(self, path: str, block: Block) -> None:
        file = self.folder / path
        if not path.endswith("/settings.py"):
            file.write_text(block.text, encoding="utf-8")
            return
        # A new project is on SQLite, so the block for that does not name it.
        engine = POSTGRESQL if POSTGRESQL in block.text else SQLITE
        if engine == self._database["ENGINE"]:
            with file.open("a", encoding="utf-8") as settings:
                settings.write(f'{block.text}\nDATABASES["default"] |= {self._database!r}\n')

    def _type(self, commands: list[str], shown: list[str]) -> None:
        for command in commands:
            expected = shown if command is commands[-1] else []
            if command in NOT_RUN:
                assert not expected
            elif command.startswith("cd "):
                self.folder /= command.removeprefix("cd ")
            elif command.startswith("python manage.py zizq_dispatch"):
                assert expected, "nothing would tell when to end it"
                self._dispatch(command, expected)
            else:
                self._execute(command, expected)

    def _execute(self, command: str, expected: list[str]) -> None:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        left = _unseen(expected, done.stdout.splitlines())
        assert not left, f"{command}\n{done.stdout}\ndoes not print {left}"

    def _dispatch(self, command: str, expected: list[str]) -> None:
        """Run a dispatcher until it has printed what is expected, then press Ctrl-C."""
        with subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            timer = threading.Timer(PATIENCE_S, process.kill)
            timer.start()
            assert process.stdout is not None
            printed: list[str] = []
            for line in process.stdout:
                printed.append(line.rstrip("\n"))
                if not _unseen(expected, printed):
                    break
            process.send_signal(signal.SIGINT)
            printed += process.stdout.read().splitlines()
            code = process.wait()
            timer.cancel()
        log = "\n".join(printed)
        assert not _unseen(expected, printed), f"{command}\n{log}"
        assert code == 0, f"{command}\n{log}"
        assert printed[-1].endswith("stops: 1 completed"), log


def _unseen(expected: list[str], printed: list[str]) -> list[str]:
    """Return the lines of *expected*, numbers and names apart, that were not printed in order."""
    left = list(expected)
    for line in printed:
        if left and re.fullmatch(_pattern(left[0]), line):
            del left[0]
    return left


def _pattern(line: str) -> str:
    pattern = re.escape(line).replace("web1", r"\S+").replace(r"\+", "[+-]")
    return re.sub(r"\d+", r"\\d+", pattern)


direct = pytest.mark.direct("the settings of the README, which know of no pooler")


@pytest.fixture(scope="module")
def empty_database() -> Iterator[dict[str, str]]:
    """What to put over ``DATABASES`` for the project: a database beside that of the suite."""
    if not django_settings.DATABASE_URL.startswith("postgres"):
        yield {"ENGINE": SQLITE}
        return
    stated = django_settings.DATABASES["default"]
    name = f"zizq_readme_{os.getpid()}"
    names = ("USER", "PASSWORD", "HOST", "PORT")
    with psycopg.connect(django_settings.DATABASE_URL, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
        yield {
            "ENGINE": POSTGRESQL,
            "NAME": name,
            **{key: str(stated[key]) for key in names},
        }
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def project(empty_database: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project as it is when the first job has run."""
    project = Project(tmp_path_factory.mktemp("readme"), empty_database)
    project.follow("A first job")
    return project


@direct
def test_a_newcomer_gets_from_an_empty_folder_to_a_job_that_ran(project: Project) -> None:
    files = {"manage.py", "mysite/settings.py", "pictures/jobs.py"}
    assert files == {name for name in files if (project.folder / name).is_file()}


@direct
def test_the_tests_shown_pass_in_that_project(project: Project) -> None:
    project.follow("Testing your jobs")


# What is stated


def test_every_setting_is_in_the_table_with_its_default_and_no_other() -> None:
    names = {"Backoff": Backoff, "Retention": Retention, "timedelta": timedelta}
    stated = {name: eval(default, names) for name, default, _ in table("Setting")}
    defaults = Settings()
    assert stated == {one.name.upper(): getattr(defaults, one.name) for one in fields(Settings)}
    assert MAX_BUDGETS_VARIABLE in section_text("Settings")


def test_every_setting_that_is_mentioned_exists() -> None:
    known = {one.name.upper() for one in fields(Settings)}
    # Words in capitals that belong to Django, PostgreSQL or the state of things.
    others = {"CONN_MAX_AGE", "DATABASES", "INSTALLED_APPS", "LOGGING", "ZIZQ", "ZIZQ_MAX_BUDGETS"}
    others |= {"SCHEDULED", "READY", "IMAGES", "LICENSE"}
    keys = set(re.findall(r'"([A-Z]+(?:_[A-Z]+)*)":', "".join(block.text for block in SITES)))
    prose = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    mentioned = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", prose))
    assert keys <= known
    assert mentioned - others <= known


def test_every_option_of_the_dispatcher_is_in_the_table_with_its_default_and_no_other() -> None:
    def actions(command: BaseCommand) -> dict[str, Any]:
        parser = command.create_parser("manage.py", "zizq_dispatch")
        return {action.option_strings[-1]: action for action in parser._actions}

    own = {
        option: action
        for option, action in actions(Command()).items()
        if option not in actions(BaseCommand())
    }
    rows = {row[0]: row[1] for row in table("Option")}
    assert set(rows) == set(own)
    assert rows.pop("--queue") == "every queue"
    site = {one.name for one in fields(Settings)}
    for option, stated in rows.items():
        default = own[option].default
        if default is None:
            assert stated.lower() in site
            assert stated.lower() == own[option].dest
        else:
            assert stated == ("off" if default is False else str(default)), option


@pytest.mark.parametrize("command", ["zizq_budgets", "zizq_jobs"])
def test_every_subcommand_and_every_filter_is_named(command: str) -> None:
    parser = load_command_class("django_zizq", command).create_parser("manage.py", command)
    (subcommands,) = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    filters = [
        action.option_strings[0]
        for action in subcommands.choices["list"]._actions
        if action.dest == "filters"
    ]
    assert filters or command != "zizq_jobs"
    section = section_text("Why is this waiting?")
    (named,) = re.findall(rf"^- `{command}` has (.*?)(?=^- |^$)", section, re.DOTALL | re.MULTILINE)
    assert re.findall(r"`(.*?)`", named) == [*subcommands.choices, *filters]


def test_every_option_that_is_mentioned_exists() -> None:
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", TEXT))
    sources = [ROOT / "dev", ROOT / "example_site/shop/management/commands/demo.py"]
    sources += (ROOT / "django_zizq/management").rglob("*.py")
    known = {
        option for source in sources for option in re.findall(r'"(--[a-z-]+)"', source.read_text())
    }
    assert mentioned - known == {"--ds", "--help"}, "of pytest-django, and of every command"


def test_every_option_of_a_job_is_in_the_table_and_no_other() -> None:
    assert first_column("Job option") == [one.name for one in fields(JobOptions)]


def test_every_public_name_is_mentioned() -> None:
    words = set(re.findall(r"\w+", TEXT))
    assert set(django_zizq.__all__) <= words


def test_every_verb_of_a_patch_is_named() -> None:
    verbs = {name for name in vars(BudgetPatch) if not name.startswith("_")} - {"apply"}
    assert verbs == {verb for verb in verbs if f"`{verb}`" in section_text("Budgets")}


def test_every_status_and_scope_is_in_its_table() -> None:
    assert first_column("Status") == list(JobStatus)
    scopes = [scope.removesuffix(" (default)") for scope in first_column("unique_while")]
    assert scopes == list(UniqueWhile)


def test_every_error_is_in_the_table_with_its_base_and_attributes_and_no_other() -> None:
    stated = {name: (base, facts) for name, base, _, facts in table("Error")}
    classes = {
        name: value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, ZizqError) and value is not ZizqError
    }
    assert stated == {
        name: (error.__base__.__name__ if error.__base__ else "", ", ".join(_facts(error)))
        for name, error in classes.items()
    }


def _facts(error: type) -> list[str]:
    return list(inspect.signature(error).parameters) if "__init__" in vars(error) else []


def test_every_check_is_in_the_table_and_no_other() -> None:
    source = (ROOT / "django_zizq/checks.py").read_text()
    known = set(re.findall(r'id="(zizq\.\w+)"', source))
    assert set(first_column("Check")) == known
    assert set(re.findall(r"zizq\.[EW]\d+", TEXT)) == known


def test_the_words_of_the_project_are_explained() -> None:
    assert first_column("Word") == GLOSSARY.split(", ")


def test_the_demo_is_as_large_as_is_said() -> None:
    with (ROOT / "example_site/shop/data/orders.csv").open(newline="") as orders:
        count = len(list(csv.DictReader(orders)))
    assert f"loads {count} orders" in TEXT
    assert f"their {3 * count} jobs" in TEXT


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("policy", "within_ms", "starts"),
    [
        pytest.param(
            BudgetPolicy(10, TimeBased(timedelta(hours=1))), HOUR_MS, 20, id="20 in its first hour"
        ),
        pytest.param(
            BudgetPolicy(9_900, TimeBased(timedelta(hours=1), burst=100)),
            HOUR_MS,
            10_000,
            id="no hour sees more than 10 000 starts",
        ),
        pytest.param(
            BudgetPolicy(200, TimeBased(timedelta(seconds=1), burst=1)),
            1_000,
            1 + 200,
            id="200 a second with a burst of 1 are 200",
        ),
    ],
)
def test_what_is_said_of_rates_holds(
    policy: BudgetPolicy, within_ms: int, starts: int, request: pytest.FixtureRequest
) -> None:
    said = request.node.callspec.id
    assert said in " ".join(TEXT.split())
    pool = Pool.full(policy, now=0)
    found, now = 0, 0
    while now <= within_ms:
        pool.refill(now=now)
        while pool.can_pay(1):
            pool.debit(1)
            found += 1
        due = pool.due(1)
        assert isinstance(due, int)
        now = due if due == within_ms else due + 1  # a moment late
    assert found == starts


def test_it_is_short_enough_to_be_read() -> None:
    assert len(TEXT.splitlines()) < 800
