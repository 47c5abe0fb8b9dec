"""Many budgets at once, every one of them saturated: nobody is starved, and nothing lies idle.

`python -m benchmarks.simulation` is the same with thousands of budgets.
"""

from tests.core.saturated import simulate

BUDGETS = 200
SIMULATED_S = 100
LONGEST_S = 2
MOST_TIMES = 32
"""What the spec allows a job, once nothing is ahead of it, in times of its slowest budget."""


def test_no_job_waits_longer_than_32_times_its_slowest_budget_and_every_limit_is_used() -> None:
    """Measured: at most 15.9 times; of each limit at least 95.8 %."""
    found = simulate(budgets=BUDGETS, seconds=SIMULATED_S, longest=LONGEST_S)
    assert max(found.leads) <= MOST_TIMES
    assert min(found.tenants) >= 7 / 8
    assert min(found.rates) >= 7 / 8


def test_without_hold_windows_a_job_on_several_of_them_would_wait_to_the_end() -> None:
    found = simulate(budgets=BUDGETS, seconds=SIMULATED_S, longest=LONGEST_S, stamps=False)
    assert max(found.leads) > 0.9 * SIMULATED_S / LONGEST_S > MOST_TIMES
