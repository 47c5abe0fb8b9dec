"""Run the benchmarks: `./dev bench`, or `python -m benchmarks` with a DATABASE_URL.

measures:
  raw       what a plain loop over psycopg does with the same rows
  enqueue   one by one and many at once, unbound and bound
  drain     one dispatcher and no-op jobs, unbound and bound
  parked    a dispatch pass behind a million parked, finished or scheduled jobs
  verbs     changing 100 000 jobs in one call, and the counts of a budget with a million
  memory    a dispatcher in front of a million ready jobs
  all       each of them (the default; about a quarter of an hour)

The exit code is 1 where a mark is missed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import django

from benchmarks.progress import say

MEASURES = ("raw", "enqueue", "drain", "parked", "verbs", "memory")
NO_DATABASE = (
    "The benchmarks need a PostgreSQL server, named in DATABASE_URL, on which they may create\n"
    "databases. `./dev bench` starts a temporary one. On SQLite there is nothing to compare."
)


def main() -> int:
    """Run what was asked for and return the exit code."""
    options = _parser().parse_args()
    if not os.environ.get("DATABASE_URL", "").startswith("postgres"):
        print(NO_DATABASE, file=sys.stderr)
        return 2
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")
    os.environ["ZIZQ_BENCH_DATABASE"] = f"zizq_bench_{os.getpid()}"
    # As Ctrl-C does: leave through the blocks that drop the databases.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    django.setup()
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from benchmarks import draining, enqueuing, memory, parked, raw, report, scratch, steering
    from benchmarks.figures import missed

    chosen = MEASURES if "all" in options.measures else options.measures
    rounds, jobs, rows = options.rounds, options.jobs, options.rows
    measures = []
    scratch.without_logs()
    with scratch.scratch_databases():
        about = report.surroundings()
        for name in MEASURES:
            if name not in chosen:
                continue
            say(name)
            scratch.renew()
            match name:
                case "raw":
                    measures += raw.run(jobs=jobs, rounds=rounds)
                case "enqueue":
                    measures += enqueuing.run(rounds=rounds)
                case "drain":
                    measures += draining.run(jobs=jobs, rounds=rounds)
                case "parked":
                    measures += parked.run(rows=rows, rounds=rounds)
                case "verbs":
                    measures += steering.run(rows=rows, rounds=rounds)
                case "memory":
                    measures += memory.run(rows=rows, rounds=rounds)
    report.show(measures, about)
    if options.json:
        report.write(options.json, measures, about)
    return 1 if missed(measures) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("measures", nargs="*", metavar="MEASURE", choices=[*MEASURES, "all"], default="all")
    add("--rounds", type=_count, default=3, help="How often each is measured (default: 3).")
    add("--jobs", type=_count, default=10_000, help="Jobs drained a round (default: 10000).")
    add(
        "--rows",
        type=_count,
        default=1_000_000,
        help="Jobs that are parked, finished, scheduled or ready (default: 1000000).",
    )
    add("--json", type=Path, metavar="FILE", help="Write every round's figures there as well.")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
