"""Run the benchmarks: `./dev bench`, or `python -m benchmarks` with a DATABASE_URL.

measures:
{measures}
  all          each of them (the default; about an hour)

The exit code is 1 where a mark is missed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import django

from benchmarks.progress import say
from benchmarks.size import Size

MEASURES = {
    "raw": ("raw", "what a plain loop over psycopg does with the same rows"),
    "enqueue": ("enqueuing", "one by one and many at once, unbound and bound"),
    "drain": ("draining", "one dispatcher and no-op jobs, unbound and bound"),
    "processes": ("crowds", "the same with two processes beside one"),
    "concurrency": ("concurrency", "5 ms jobs, at most four at once"),
    "rates": ("rates", "200 starts a second, evenly paced"),
    "dues": ("dues", "from the due time of a token to the start it pays for"),
    "latency": ("latency", "from enqueue to start, with an idle dispatcher"),
    "idle": ("idle", "what idle dispatchers ask of the server"),
    "parked": ("parked", "a pass behind a million parked, finished and scheduled jobs"),
    "dry": ("dry", "unbound jobs beside 8192 dry budgets"),
    "behind": ("behind", "a thousand free jobs behind a hundred thousand blocked ones"),
    "verbs": ("steering", "changing 100 000 jobs in one call, and the counts of a budget"),
    "memory": ("memory", "a dispatcher that dispatches a million jobs"),
    "snapshot": ("snapshot", "a pass while a reader holds its snapshot for five minutes"),
    "scaling": ("scaling", "the slopes that docs/scaling.md reckons with, and the WAL"),
}
NO_DATABASE = (
    "The benchmarks need a PostgreSQL server, named in DATABASE_URL, on which they may create\n"
    "databases. `./dev bench` starts a temporary one. On SQLite there is nothing to compare."
)
RESULTS = Path(__file__).with_name("RESULTS.md")


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
    from benchmarks import report, results, scratch
    from benchmarks.figures import Measure, missed

    size = Size(**{field.name: getattr(options, field.name) for field in fields(Size)})
    found: dict[str, list[Measure]] = {}
    scratch.without_logs()
    with scratch.scratch_databases():
        about = report.surroundings()
        for name, (module, _) in MEASURES.items():
            if name in options.measures or "all" in options.measures:
                say(name)
                scratch.renew()
                found[name] = import_module(f"benchmarks.{module}").run(size)
                # At once, so that nothing measured is lost to what goes wrong hours later.
                if options.results:
                    results.write(options.results, found, about, order=list(MEASURES))
    everything = [measure for measures in found.values() for measure in measures]
    report.show(everything, about)
    if options.json:
        report.write(options.json, everything, about)
    return 1 if missed(everything) else 0


def _parser() -> argparse.ArgumentParser:
    about = "\n".join(f"  {name:<12} {says}" for name, (_, says) in MEASURES.items())
    parser = argparse.ArgumentParser(
        prog="./dev bench",
        description=(__doc__ or "").format(measures=about),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, usual = parser.add_argument, Size()
    add("measures", nargs="*", metavar="MEASURE", choices=[*MEASURES, "all"], default="all")
    for name, help in (
        ("rounds", "How often each is measured"),
        ("jobs", "Jobs drained a round"),
        ("rows", "Jobs that are parked, finished, scheduled or ready"),
        ("blocked", "Jobs in front of the free ones, and changed by one verb"),
        ("budgets", "Budgets that are dry, and the most of the slope"),
        ("samples", "Jobs whose start is timed a round"),
        ("seconds", "How long starts are counted, and idle dispatchers watched"),
        ("hold", "Seconds for which the snapshot is held"),
    ):
        default = getattr(usual, name)
        add(f"--{name}", type=_count, default=default, help=f"{help} (default: {default}).")
    add("--json", type=Path, metavar="FILE", help="Write every round's figures there as well.")
    add(
        "--results",
        nargs="?",
        type=Path,
        const=RESULTS,
        metavar="FILE",
        help=f"Put the sections of what was measured into that file (default: {RESULTS.name}).",
    )
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
