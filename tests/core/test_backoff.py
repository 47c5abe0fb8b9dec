"""How long a failed job waits, and how long a finished one is kept."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_zizq.core.backoff import Backoff, Retention
from django_zizq.core.errors import InvalidJob
from tests.core.limits import HOUR

DAY = 24 * HOUR
CENTURY_MS = 36_525 * DAY
ALMOST_ONE = 1 - 2**-53


def ms(milliseconds: int) -> timedelta:
    return timedelta(milliseconds=milliseconds)


BACKOFFS = st.builds(
    Backoff,
    st.floats(0, 100) | st.integers(0, 100),
    st.timedeltas(timedelta(0), ms(CENTURY_MS)),
    st.timedeltas(timedelta(0), ms(CENTURY_MS)),
)


@pytest.mark.parametrize(("attempts", "delay"), [(0, 100), (1, 1_100), (2, 4_100), (3, 9_100)])
def test_case_160_the_delay_is_a_power_of_the_attempts_plus_the_base(
    attempts: int, delay: int
) -> None:
    assert Backoff(2.0, ms(100), ms(0)).delay_ms(attempts, chance=0.5) == delay


@pytest.mark.parametrize(("chance", "delay"), [(0, 16_000), (0.5, 46_000), (ALMOST_ONE, 75_999)])
def test_jitter_is_a_random_share_for_each_attempt(chance: float, delay: int) -> None:
    backoff = Backoff(4.0, timedelta(seconds=15), timedelta(seconds=30))
    assert backoff.delay_ms(2, chance=chance) == delay + 15_000


@pytest.mark.parametrize("chance", [0, 0.5, ALMOST_ONE])
def test_case_162_the_default_retries_take_24_to_26_days(chance: float) -> None:
    window = sum(Backoff().delay_ms(attempts, chance=chance) for attempts in range(1, 26))
    assert 24 * DAY <= window <= 26 * DAY


@pytest.mark.parametrize(
    ("backoff", "attempts"),
    [
        pytest.param(Backoff(100.0), 1_000_000, id="beyond a float"),
        pytest.param(Backoff(100), 1_000_000, id="a very long integer"),
        pytest.param(Backoff(51.3), 1_000_000, id="beyond a float only in milliseconds"),
        pytest.param(Backoff(base=ms(CENTURY_MS)), 1, id="the base"),
        pytest.param(Backoff(jitter=ms(CENTURY_MS)), 1_000_000, id="the jitter"),
    ],
)
def test_no_delay_is_longer_than_a_hundred_years(backoff: Backoff, attempts: int) -> None:
    assert backoff.delay_ms(attempts, chance=0.9) == CENTURY_MS


@given(BACKOFFS, st.integers(1, 1_000_000), st.floats(0, 1, exclude_max=True))
def test_every_delay_can_be_stored(backoff: Backoff, attempts: int, chance: float) -> None:
    assert 0 <= backoff.delay_ms(attempts, chance=chance) <= CENTURY_MS


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"exponent": -0.1}, "exponent must be from 0 to 100"),
        ({"exponent": 100.1}, "exponent must be from 0 to 100"),
        ({"exponent": float("nan")}, "exponent must be from 0 to 100"),
        ({"exponent": True}, "exponent must be a number"),
        ({"exponent": "4"}, "exponent must be a number"),
        ({"base": ms(-1)}, "base must be a timedelta from 0 to 36525 days"),
        ({"base": 15}, "base must be a timedelta from 0 to 36525 days"),
        ({"jitter": ms(-1)}, "jitter must be a timedelta from 0 to 36525 days"),
    ],
)
def test_a_backoff_out_of_range_is_refused(fields: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidJob, match=fault) as caught:
        Backoff(**fields)
    assert caught.value.field == "backoff"


def test_the_defaults_are_those_of_the_spec() -> None:
    stored = {"exponent": 4.0, "base_ms": 15_000, "jitter_ms": 30_000}
    assert Backoff().as_json() == stored


def test_finished_jobs_are_kept_for_a_day_and_dead_ones_for_a_week() -> None:
    assert Retention().as_json() == {"completed_ms": DAY, "dead_ms": 7 * DAY}


@pytest.mark.parametrize("field", ["completed", "dead"])
@pytest.mark.parametrize("value", [ms(-1), ms(CENTURY_MS + 1), 60])
def test_a_retention_out_of_range_is_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidJob, match=f"{field} must be a timedelta from 0 to 36525 days"):
        Retention(**{field: value})


@pytest.mark.parametrize("value", [ms(0), ms(CENTURY_MS)])
def test_finished_jobs_may_be_kept_not_at_all_or_for_a_hundred_years(value: timedelta) -> None:
    retention = Retention(completed=value, dead=value)
    assert Retention.from_json(retention.as_json()) == retention


@given(BACKOFFS, st.integers(1, 100))
def test_a_stored_backoff_gives_the_same_delays(backoff: Backoff, attempts: int) -> None:
    stored = Backoff.from_json(backoff.as_json())
    assert stored.delay_ms(attempts, chance=0.5) == backoff.delay_ms(attempts, chance=0.5)
    assert stored.as_json() == backoff.as_json()
