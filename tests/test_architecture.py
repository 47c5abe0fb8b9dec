"""What holds the package together: its layers, its migrations, and what importing it loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from django.test import override_settings
from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent


def test_imports_point_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(no_cache=True) == 0


def test_importing_the_package_loads_no_model_and_needs_no_settings() -> None:
    script = (
        "import sys; from django_zizq import Binding, BudgetPolicy, WhileInFlight, enqueue, job; "
        "assert callable(enqueue); "
        "assert not [name for name in sys.modules if name.startswith('django_zizq.models')]"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=ROOT, env={}, check=True)


def test_the_package_still_exports_its_function_once_django_is_set_up() -> None:
    """A submodule called ``enqueue`` would take its place."""
    import django_zizq

    for name in django_zizq.__all__:
        assert not hasattr(getattr(django_zizq, name), "__path__"), name
        assert type(getattr(django_zizq, name)).__name__ != "module", name


@pytest.mark.django_db
@pytest.mark.parametrize("auto_field", ["AutoField", "BigAutoField", "SmallAutoField"])
@pytest.mark.parametrize("use_tz", [True, False])
def test_no_site_is_asked_to_make_a_migration(auto_field: str, use_tz: bool) -> None:
    with override_settings(DEFAULT_AUTO_FIELD=f"django.db.models.{auto_field}", USE_TZ=use_tz):
        call_command("makemigrations", "django_zizq", check=True, dry_run=True, verbosity=0)


def test_every_module_of_a_skin_or_rule_is_small() -> None:
    """A file that has grown past what one sitting reads does more than one thing."""
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for path in (ROOT / "django_zizq").rglob("*.py")
        if "migrations" not in path.parts
    }
    assert {path: length for path, length in lengths.items() if length > 320} == {}
    commands = {path: n for path, n in lengths.items() if "/management/commands/" in path}
    assert {path: length for path, length in commands.items() if length > 110} == {}
