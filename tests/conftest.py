"""What every test may use."""

import os

import pytest
from django.conf import settings
from django.db import connection
from pytest_django.plugin import blocking_manager_key

from tests.spec.harness import Site


def pytest_report_header(config: pytest.Config) -> str:
    """Say which database the run is on."""
    with config.stash[blocking_manager_key].unblock():
        version = ".".join(map(str, connection.get_database_version()))
        connection.close()
    return f"database: {connection.display_name} {version}"


@pytest.fixture
def site(db: None) -> Site:
    """A site with one worker, whose clock the test states."""
    return Site()


_ONLY_ON = {
    "postgresql": "needs PostgreSQL; a run on another database leaves it out (as deselected)",
    "sqlite": "is about SQLite; a run on another database leaves it out (as deselected)",
}


def pytest_configure(config: pytest.Config) -> None:
    for marker, help in _ONLY_ON.items():
        config.addinivalue_line("markers", f"{marker}: {help}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests that are about the other database."""
    others = _ONLY_ON.keys() - {connection.vendor}
    deselected = [item for item in items if any(map(item.get_closest_marker, others))]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]


@pytest.fixture
def process_environment(transactional_db: None) -> dict[str, str]:
    """The environment that puts another Python process on the database of this test."""
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "ZIZQ_TEST_DATABASE_URL": settings.DATABASE_URL,
        "ZIZQ_TEST_DATABASE_NAME": connection.settings_dict["NAME"],
    }
