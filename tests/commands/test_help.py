"""The --help of every subcommand: it is there, it has an example, and it fits 100 columns."""

from __future__ import annotations

import argparse

import pytest
from django.core.management import call_command, load_command_class

COMMANDS = ("zizq_budgets", "zizq_jobs")


def subcommands(command: str) -> list[str]:
    parser = load_command_class("django_zizq", command).create_parser("manage.py", command)
    (action,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return list(action.choices)


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        call_command(*arguments, "--help")
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_names_its_subcommands(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(capsys, command)
    for name in subcommands(command):
        assert f"\n    {name} " in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("command", "name"), [(command, name) for command in COMMANDS for name in subcommands(command)]
)
def test_the_help_of_a_subcommand_fits_and_has_an_example(
    command: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(capsys, command, name)
    assert f"\nexamples:\n  manage.py {command} {name}" in text
    assert "--json" in text
    assert "--settings" not in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_is_for(command: str) -> None:
    parser = load_command_class("django_zizq", command).create_parser("manage.py", command)
    (action,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, subparser in action.choices.items():
        assert [a.option_strings for a in subparser._actions if not a.help] == [], name


@pytest.mark.django_db
@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_django_may_stand_behind_the_subcommand(command: str) -> None:
    call_command(command, "list", "--verbosity", "0", "--no-color", "--settings", "tests.settings")
