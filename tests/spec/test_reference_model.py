"""Whatever is done, in any order, the library does as a plain model of its spec does."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.spec.comparison import Comparison


def compare(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Comparison,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            # Shrinking takes minutes, and the steps of an example are few enough to read.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


EXAMPLES = int(os.environ.get("ZIZQ_TEST_EXAMPLES", "25"))
"""About a fifth of a second each, on a machine that has nothing else to do."""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "examples", [EXAMPLES, pytest.param(8 * EXAMPLES, marks=[pytest.mark.slow, pytest.mark.soak])]
)
def test_the_library_does_as_the_model_of_its_spec_does(examples: int) -> None:
    compare(examples, steps=40)
