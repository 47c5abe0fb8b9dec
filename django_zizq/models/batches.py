"""Going through a selection of jobs of any size, a handful of statements for each thousand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict, TypeVar

from django.db import transaction

from django_zizq.dialect import Database

BATCH: Final = 1000

Progress = Callable[[int], None]

T = TypeVar("T")


class How(TypedDict, total=False):
    """State how a verb goes through a selection.

    *batch_size* makes a transaction of its own for each so many jobs, so that none is held open
    for long; what is done stays done if a later one is refused. Without it all of the jobs
    change, or none. *dry_run* reports what would happen and changes nothing. *progress* is
    called with the number of jobs done so far.
    """

    batch_size: int | None
    dry_run: bool
    progress: Progress | None


def check_how(how: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for a keyword that means nothing, ``ValueError`` for a bad batch size.

    A mistyped *dry_run* must not become a run in earnest.
    """
    if unknown := sorted(how.keys() - How.__annotations__.keys()):
        raise TypeError(f"got an unexpected keyword argument '{unknown[0]}'")
    size = how.get("batch_size")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise ValueError(f"batch_size must be an integer of at least 1, not {size!r}.")


_LOCK = """
    SELECT id FROM django_zizq_job WHERE {among} AND status IN ({statuses}) ORDER BY id {lock}
"""


def in_transactions(
    db: Database,
    job_ids: Sequence[int],
    work: Callable[[Sequence[int], Progress], T],
    how: How,
) -> list[T]:
    """Do *work* on the jobs, in one transaction or several as *how* says; return what came of it.

    *work* gets the ids, none at all where there are none, and a function to call with the number
    of jobs it has just done. A dry run is one transaction whatever the batch size: what it does to
    one job the next must see, and a second batch would lock jobs after the budgets of the first.
    """
    progress, done = how.get("progress"), 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done)

    dry_run = how.get("dry_run")
    results = []
    for batch in list(in_batches(job_ids, None if dry_run else how.get("batch_size"))) or [job_ids]:
        with transaction.atomic(using=db.using):
            results.append(work(batch, advance))
            if dry_run:
                transaction.set_rollback(True, using=db.using)
    return results


def in_batches(job_ids: Sequence[int], size: int | None = BATCH) -> Iterator[Sequence[int]]:
    """Yield *job_ids* in runs of *size*, in one where it is None."""
    step = size or len(job_ids) or 1
    for start in range(0, len(job_ids), step):
        yield job_ids[start : start + step]


def lock_jobs(db: Database, job_ids: Sequence[int], statuses: Iterable[str]) -> set[int]:
    """Lock those of the jobs that have one of *statuses*, waiting, in id order; return their ids.

    A job that gets another status while this waits for it is left out.
    """
    listed = ", ".join(f"'{status}'" for status in sorted(statuses))
    sql = _LOCK.format(among=db.among("id"), statuses=listed, lock=db.wait)
    locked: set[int] = set()
    for batch in in_batches(job_ids):
        locked.update(id for (id,) in db.rows(sql, db.listed(batch)))
    return locked
