"""The statuses and the moves between them."""

import pytest

from django_zizq.core.lifecycle import QUEUED, TERMINAL, TRANSITIONS, UNFINISHED, JobStatus


def test_the_statuses_are_stored_under_the_names_of_the_spec() -> None:
    assert list(JobStatus) == ["scheduled", "ready", "in_flight", "completed", "dead"]


@pytest.mark.parametrize(
    ("name", "statuses", "members"),
    [
        ("queued", QUEUED, {"scheduled", "ready"}),
        ("unfinished", UNFINISHED, {"scheduled", "ready", "in_flight"}),
        ("terminal", TERMINAL, {"completed", "dead"}),
    ],
)
def test_the_words_for_several_statuses(
    name: str, statuses: frozenset[JobStatus], members: set[str]
) -> None:
    assert statuses == members, name


@pytest.mark.parametrize(
    ("status", "becomes"),
    [
        ("scheduled", {"ready", "dead"}),
        ("ready", {"in_flight", "dead"}),
        ("in_flight", {"ready", "scheduled", "completed", "dead"}),
        ("completed", set()),
        ("dead", {"ready"}),
    ],
)
def test_a_job_moves_only_as_the_table_says(status: str, becomes: set[str]) -> None:
    assert TRANSITIONS[JobStatus(status)] == becomes


def test_completed_jobs_never_change_and_every_other_status_leads_on() -> None:
    assert [status for status in JobStatus if not TRANSITIONS[status]] == [JobStatus.COMPLETED]
