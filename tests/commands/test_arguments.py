"""What the commands take as numbers, durations, times and rates, and what they say of the rest."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from django_zizq.management import arguments
from django_zizq.management.arguments import at, duration, moment, ranges
from django_zizq.management.policies import rate

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("30", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("1h30m", 5_400_000),
        ("1s1ms", 1_001),
        ("0", 0),
    ],
)
def test_a_duration_is_a_whole_number_and_its_unit(text: str, milliseconds: int) -> None:
    assert duration(text) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("text", ["", "1.5s", "-1s", "1w", "h", "1 h", "1e3", "½h", "9" * 15 + "d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"not a duration such as|is too long"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("10000/1h", (10_000, timedelta(hours=1))),
        ("10000/h", (10_000, timedelta(hours=1))),
        ("5/250ms", (5, timedelta(milliseconds=250))),
        ("5/10", (5, timedelta(seconds=10))),
    ],
)
def test_a_rate_is_an_allocation_and_a_duration(text: str, stated: object) -> None:
    assert rate(text) == stated


@pytest.mark.parametrize("text", ["10000", "/1h", "10/", "1.5/s", "ten/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a"):
        rate(text)


@override_settings(TIME_ZONE="America/New_York")
@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-05T09:30:00Z", datetime(2026, 1, 5, 9, 30, tzinfo=UTC)),
        ("2026-01-05T09:30+02:00", datetime(2026, 1, 5, 7, 30, tzinfo=UTC)),
        ("2026-01-05T09:30", datetime(2026, 1, 5, 14, 30, tzinfo=UTC)),
        ("2026-01-05 09:30", datetime(2026, 1, 5, 14, 30, tzinfo=UTC)),
        ("2026-01-05", datetime(2026, 1, 5, 5, tzinfo=UTC)),
        ("-2h", datetime(2026, 1, 5, 10, tzinfo=UTC)),
        ("+30m", datetime(2026, 1, 5, 12, 30, tzinfo=UTC)),
    ],
)
def test_a_time_is_in_the_current_zone_or_as_it_says_or_relative_to_now(
    text: str, instant: datetime
) -> None:
    timezone.deactivate()
    assert at(moment(text), now=NOW) == instant


@override_settings(USE_TZ=False, TIME_ZONE="America/New_York")
def test_a_site_without_time_zones_gets_naive_times() -> None:
    assert moment("2026-01-05T09:30") == datetime(2026, 1, 5, 9, 30)  # noqa: DTZ001
    assert moment("2026-01-05T14:30Z") == datetime(2026, 1, 5, 9, 30)  # noqa: DTZ001


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", "2h", "-", "+", "-2x", "0001-01-01", "+99999999d"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"is not a |too far away"):
        moment(text)


def test_ids_are_numbers_and_ranges() -> None:
    assert ranges("1,2,5-9") == [(1, 1), (2, 2), (5, 9)]


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        (ranges, "1,,2", "'' is neither a number nor a range"),
        (ranges, "one", "'one' is neither"),
        (ranges, "-5", "'-5' is neither"),
        (ranges, "9-5", "'9-5' ends before it begins"),
        (ranges, "9999999999999999999", "is above 9223372036854775807"),
        (arguments.size, "0", "at least 1"),
        (arguments.tokens, "1.5", "'1.5' is not a whole number"),
        (arguments.tokens, "9" * 5000, "is not a whole number"),
        (arguments.job_id, "x", "'x' is not the id of a job"),
        (arguments.name, "", "'' must not be empty"),
        (arguments.name, "a,b", "must not contain ','"),
        (arguments.names, "a,", "name '' must not be empty"),
    ],
)
def test_a_fault_is_said_in_the_words_of_the_argument(
    kind: Callable[[str], Any], text: str, fault: str
) -> None:
    with pytest.raises(ArgumentTypeError) as caught:
        kind(text)
    assert fault in str(caught.value)
