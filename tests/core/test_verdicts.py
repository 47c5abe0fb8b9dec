"""What becomes of a job that fails."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_zizq.core.backoff import Backoff
from django_zizq.core.errors import InvalidJob
from django_zizq.core.lifecycle import JobStatus
from django_zizq.core.verdicts import Kill, Retry, Verdict, after_failure
from tests.core.limits import HOUR, T0

DEAD = Verdict(status=JobStatus.DEAD)
BACKOFF = Backoff(2.0, timedelta(0), timedelta(seconds=1))
LATER = T0 + HOUR


def scheduled(retry_at: int) -> Verdict:
    return Verdict(status=JobStatus.SCHEDULED, retry_at=retry_at)


@pytest.mark.parametrize(
    ("attempts", "killed", "retry_at", "verdict"),
    [
        pytest.param(1, True, None, DEAD, id="asked to be killed"),
        pytest.param(1, True, LATER, DEAD, id="killed although a retry time was given"),
        pytest.param(1, False, LATER, scheduled(LATER), id="a retry time was given"),
        pytest.param(4, False, LATER, scheduled(LATER), id="a retry time beats the retry limit"),
        pytest.param(4, False, None, DEAD, id="more failures than the retry limit"),
        pytest.param(3, False, None, scheduled(T0 + 10_500), id="as many as the limit: backs off"),
        pytest.param(1, False, None, scheduled(T0 + 1_500), id="backs off"),
    ],
)
def test_the_first_rule_that_applies_decides(
    attempts: int, killed: bool, retry_at: int | None, verdict: Verdict
) -> None:
    decided = after_failure(
        attempts=attempts,
        retry_limit=3,
        backoff=BACKOFF,
        chance=0.5,
        killed=killed,
        retry_at=retry_at,
        now=T0,
    )
    assert decided == verdict


def test_a_retry_limit_of_zero_allows_no_second_try() -> None:
    verdict = after_failure(
        attempts=1,
        retry_limit=0,
        backoff=BACKOFF,
        chance=0,
        killed=False,
        retry_at=None,
        now=T0,
    )
    assert verdict == DEAD


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Retry(), "retry asked for"),
        (Retry(delay=timedelta(minutes=5)), "retry asked for: 0:05:00"),
        (Retry(at=datetime(2030, 1, 1, tzinfo=UTC)), "retry asked for: 2030-01-01 00:00:00+00:00"),
        (Kill(), "killed by its handler"),
        (Kill("the card was stolen"), "the card was stolen"),
    ],
)
def test_what_a_handler_asks_for_reads_well_in_the_error_record(
    request_: Exception, words: str
) -> None:
    assert str(request_) == words


@pytest.mark.parametrize(
    "times",
    [
        {"delay": timedelta(milliseconds=-1)},
        {"delay": timedelta(days=36_526)},
        {"delay": timedelta(0), "at": datetime(2030, 1, 1, tzinfo=UTC)},
    ],
)
def test_a_retry_time_that_cannot_be_is_refused(times: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob):
        Retry(**times)
