"""What cannot be done is said in one line, whichever command was asked, not as a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import OperationalError, ProgrammingError, connection
from django.test import override_settings
from django.utils import timezone

from django_zizq.models import Budget
from tests.commands.calling import call, manage, refusal
from tests.core.limits import cc
from tests.spec.harness import Site

pytestmark = pytest.mark.django_db

TOO_LONG = ["9999999d", "2900000d", "2600000d", "99999999999999d", "9" * 400 + "d", "9" * 4_000]


@pytest.mark.parametrize("span", TOO_LONG, ids=lambda span: span[:16])
@pytest.mark.parametrize("use_tz", [True, False])
def test_a_pause_longer_than_time_itself_is_refused(site: Site, span: str, use_tz: bool) -> None:
    site.create("stripe", cc(1))
    with override_settings(USE_TZ=use_tz), pytest.raises(CommandError) as caught:
        call("zizq_budgets", "pause", "stripe", "--for", span)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert "Traceback" not in said
    assert Budget.objects.get().paused_until is None


@pytest.mark.parametrize("until", ["9999-12-31", "9990-12-31T23:59", "+9999999d", "0001-01-01"])
def test_so_is_one_until_a_time_that_no_pause_can_end_at(site: Site, until: str) -> None:
    site.create("stripe", cc(1))
    with pytest.raises(CommandError) as caught:
        call("zizq_budgets", "pause", "stripe", "--until", until)
    assert len(str(caught.value).splitlines()) == 1
    assert Budget.objects.get().paused_until is None


def test_a_pause_of_a_hundred_years_is_none_of_these(site: Site) -> None:
    site.create("stripe", cc(1))
    call("zizq_budgets", "pause", "stripe", "--for", "36525d")
    until = Budget.objects.get().paused_until
    assert until is not None
    assert until > timezone.now() + timedelta(days=36_524)


@pytest.mark.django_db(transaction=True)
def test_at_a_terminal_it_is_one_line_as_well(process_environment: dict[str, str]) -> None:
    Budget.objects.create_budget("stripe", cc(1))
    ended = manage(process_environment, "zizq_budgets", "pause", "stripe", "--for", "9999999d")
    assert ended.returncode in (1, 2)
    assert "Traceback" not in ended.stderr
    assert "pause" in ended.stderr.splitlines()[-1]
    assert ended.stdout == ""


@contextmanager
def failing(error: Exception, words: str) -> Iterator[None]:
    """Have the database fail at every statement that has these words in it."""

    def fail(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if words in sql:
            raise error
        return execute(sql, *rest)

    with connection.execute_wrapper(fail):
        yield


COMMANDS: dict[str, list[str]] = {
    "check": ["zizq_check"],
    "check as JSON": ["zizq_check", "--json"],
    "repair": ["zizq_check", "--repair"],
    "budgets": ["zizq_budgets", "list"],
    "jobs": ["zizq_jobs", "list"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("words", ["", "django_zizq_"], ids=["at once", "at the first look"])
def test_an_outage_is_said_in_a_line(site: Site, command: list[str], words: str) -> None:
    site.create("stripe", cc(1))
    with failing(OperationalError("the server went away"), words):
        said = refusal(*command)
    assert said == "The database 'default' is out of reach: the server went away"


def test_an_outage_in_the_middle_of_a_check_is_said_in_a_line(site: Site) -> None:
    site.create("stripe", cc(1))
    Budget.objects.update(in_use=1)
    site.enqueue("stripe")
    with failing(OperationalError("the server went away"), "binding.position"):
        said = refusal("zizq_check")
    assert said == "The database 'default' is out of reach: the server went away"


def test_a_bug_is_still_shown_as_one(site: Site) -> None:
    site.create("stripe", cc(1))
    with failing(ProgrammingError("a bug"), "django_zizq_"), pytest.raises(ProgrammingError):
        call("zizq_check")


@pytest.mark.django_db(transaction=True)
def test_a_server_that_is_not_there_is_said_in_a_line(
    process_environment: dict[str, str],
) -> None:
    nowhere = {
        "ZIZQ_TEST_DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing",
        "ZIZQ_TEST_DATABASE_NAME": "nothing",
    }
    for command in (["zizq_check"], ["zizq_jobs", "count"]):
        ended = manage(process_environment | nowhere, *command, "--skip-checks")
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.startswith("CommandError: The database 'default' is out of reach: ")
        assert "Traceback" not in ended.stderr
