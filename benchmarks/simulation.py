"""The walk over thousands of saturated budgets, in simulated time and without a database.

python -m benchmarks.simulation [--budgets 4096] [--seconds 600] [--longest 8]

See `tests/core/saturated.py` for who draws on what. The exit code is 1 where a mark is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median

from benchmarks.figures import grouped, percentile
from tests.core.saturated import Outcome, simulate

MOST_TIMES = 32
LEAST_USE = 7 / 8


def main() -> int:
    """Simulate once, and print what came out."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--budgets", type=int, default=4096, help="How many (default: 4096).")
    add("--seconds", type=int, default=600, help="Simulated time (default: 600).")
    add("--longest", type=int, default=8, help="Time of the slowest, in seconds (default: 8).")
    options = parser.parse_args()
    began = time.perf_counter()
    found = simulate(budgets=options.budgets, seconds=options.seconds, longest=options.longest)
    took = time.perf_counter() - began
    print(
        f"{grouped(options.budgets)} budgets, {options.seconds} s simulated in {took:.0f} s: "
        f"{grouped(found.starts)} starts\n"
    )
    _show(found)
    met = max(found.leads) <= MOST_TIMES and min(*found.tenants, *found.rates) >= LEAST_USE
    print(
        f"\nAt most {MOST_TIMES} times, and at least {LEAST_USE:.1%}: {'met' if met else 'missed'}"
    )
    return 0 if met else 1


def _show(found: Outcome) -> None:
    print("| | lowest | 1 % | median | 99 % | highest |\n|---|---:|---:|---:|---:|---:|")
    for name, values, form in (
        ("use of a tenant's limit", found.tenants, ".1%"),
        ("use of a rate", found.rates, ".1%"),
        ("longest wait in a lane of several budgets, in times of the slowest", found.leads, ".1f"),
    ):
        figures = (
            min(values),
            percentile(values, 1),
            median(values),
            percentile(values, 99),
            max(values),
        )
        cells = " | ".join(format(figure, form).replace("%", " %") for figure in figures)
        print(f"| {name} | {cells} |")


if __name__ == "__main__":
    sys.exit(main())
