"""What every test may use."""

import os

import pytest
from django.conf import settings
from django.db import connection
from django.test import TransactionTestCase
from pytest_django import Settings
from pytest_django.plugin import blocking_manager_key

from tests import pgbouncer
from tests.emptying import empty_tables
from tests.spec.harness import Site


def pytest_report_header(config: pytest.Config) -> str:
    """Say which database the run is on, and what lies in between."""
    with config.stash[blocking_manager_key].unblock():
        version = ".".join(map(str, connection.get_database_version()))
        connection.close()
    through = ""
    if settings.IS_POOLED:
        (pooler,) = pgbouncer.ask(settings.DATABASE_URL, "SHOW VERSION")
        through = f" through {pooler['version']}"
    return f"database: {connection.display_name} {version}{through}"


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb: bool) -> bool:
    """Say whether to drop no database: a pooler has connections to it, and its server goes too."""
    return django_db_keepdb or settings.IS_POOLED


@pytest.fixture
def site(db: None) -> Site:
    """A site with one worker, whose clock the test states."""
    return Site()


_ONLY_ON = {
    "postgresql": "needs PostgreSQL; a run on another database leaves it out (as deselected)",
    "sqlite": "is about SQLite; a run on another database leaves it out (as deselected)",
    "pgbouncer": "is about PgBouncer; a run that is not through it leaves it out (as deselected)",
}

_DIRECT = "direct(reason): needs the server itself; a run through PgBouncer skips it"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on-database",
        action="store_true",
        help="leave out (as deselected) the tests in which the database has no part",
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker, help in _ONLY_ON.items():
        config.addinivalue_line("markers", f"{marker}: {help}")
    TransactionTestCase._fixture_teardown = empty_tables  # type: ignore[attr-defined]
    config.addinivalue_line("markers", _DIRECT)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests that are about the other database, or about none."""
    others = _ONLY_ON.keys() - {connection.vendor, settings.CHOSEN}
    deselected = [item for item in items if any(map(item.get_closest_marker, others))]
    if settings.IS_POOLED or config.option.on_database:
        deselected += [item for item in items if not _has_database(item)]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if item not in deselected]
    if settings.IS_POOLED:
        for item in items:
            if direct := item.get_closest_marker("direct"):
                item.add_marker(pytest.mark.skip(reason=f"not through a pooler: {direct.args[0]}"))


def _has_database(item: pytest.Item) -> bool:
    """Say whether a test, or a process that it starts, uses the database of the run."""
    fixtures = getattr(item, "fixturenames", ())
    return (
        "concurrency" in item.path.parts
        or not {"db", "transactional_db"}.isdisjoint(fixtures)
        or any(map(item.get_closest_marker, ["django_db", "direct", *_ONLY_ON]))
    )


@pytest.fixture
def announcing(settings: Settings) -> None:
    """A site that sends NOTIFY where it can, as most do: behind a pooler they are told not to."""
    settings.ZIZQ = {**settings.ZIZQ, "NOTIFY": True}


@pytest.fixture
def process_environment(transactional_db: None) -> dict[str, str]:
    """The environment that puts another Python process on the database of this test."""
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "ZIZQ_TEST_DATABASE_URL": settings.DATABASE_URL,
        "ZIZQ_TEST_DATABASE_NAME": connection.settings_dict["NAME"],
    }
