"""The ZIZQ setting: its defaults, and what is wrong with it said before anything runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from pytest_django import Settings as SettingsFixture

from django_zizq import Backoff, Retention
from django_zizq.checks import check_settings
from django_zizq.conf import Settings
from django_zizq.conf import settings as zizq_settings


def test_a_site_that_sets_nothing_gets_the_defaults(settings: SettingsFixture) -> None:
    del settings.ZIZQ
    assert zizq_settings() == Settings()
    assert check_settings() == []


def test_the_defaults_are_those_of_the_spec() -> None:
    defaults = Settings()
    assert (defaults.max_budgets, defaults.default_priority, defaults.retry_limit) == (
        8192,
        32768,
        25,
    )
    assert (defaults.max_lost, defaults.backoff, defaults.retention) == (3, Backoff(), Retention())


def test_settings_are_read_when_they_are_needed() -> None:
    with override_settings(ZIZQ={"RETRY_LIMIT": 3}):
        assert zizq_settings().retry_limit == 3
    assert zizq_settings().retry_limit == 25


@pytest.mark.parametrize(
    ("stated", "fault"),
    [
        ({"RETRY_LIMITS": 3}, "ZIZQ has no setting RETRY_LIMITS. It knows: AUDIT_INTERVAL"),
        ({"retry_limit": 3}, "ZIZQ has no setting retry_limit"),
        ({"RETRY_LIMIT": "3"}, r'ZIZQ\["RETRY_LIMIT"\] must be an integer from 0 to 1000000, not'),
        ({"RETRY_LIMIT": True}, "must be an integer"),
        ({"MAX_BUDGETS": 0}, "must be an integer of at least 1, not 0"),
        ({"POLL_INTERVAL": 1.0}, "must be a timedelta from 0.01 seconds to 365 days"),
        ({"HEARTBEAT_INTERVAL": timedelta(0)}, "must be a timedelta"),
        ({"HEARTBEAT_TIMEOUT": timedelta.max}, "must be a timedelta"),
        ({"NOTIFY": 1}, "must be a bool"),
        ({"BACKOFF": 4.0}, "must be a Backoff"),
        ({"DEFAULT_QUEUE": "a,b"}, "must not contain ','"),
        (["NOTIFY"], "ZIZQ must be a dictionary, not list"),
    ],
)
def test_unknown_keys_and_wrong_values_are_refused_by_a_system_check(
    stated: Any, fault: str
) -> None:
    with override_settings(ZIZQ=stated):
        with pytest.raises(ImproperlyConfigured, match=fault):
            zizq_settings()
        (error,) = check_settings()
    assert error.id == "zizq.E001"


def test_a_heartbeat_timeout_below_three_intervals_is_refused() -> None:
    late = {"HEARTBEAT_INTERVAL": timedelta(seconds=11)}
    with override_settings(ZIZQ=late):
        assert [error.id for error in check_settings()] == ["zizq.E002"]
    with override_settings(ZIZQ=late | {"HEARTBEAT_TIMEOUT": timedelta(seconds=33)}):
        assert check_settings() == []


def test_the_environment_limits_budgets_where_the_setting_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZIZQ_MAX_BUDGETS", "17")
    assert zizq_settings().max_budgets == 17
    with override_settings(ZIZQ={"MAX_BUDGETS": 9}):
        assert zizq_settings().max_budgets == 9


@pytest.mark.parametrize("value", ["many", "0", ""])
def test_a_wrong_limit_in_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("ZIZQ_MAX_BUDGETS", value)
    with pytest.raises(ImproperlyConfigured, match="MAX_BUDGETS"):
        zizq_settings()
