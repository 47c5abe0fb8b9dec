"""A dispatcher without its loop: the passes that a test runs itself."""

from collections.abc import Collection, Sequence

from django.db import Error

from django_zizq import maintenance
from django_zizq.dialect import Database, is_lock_timeout
from django_zizq.dispatch import Pass, Request, run_pass
from django_zizq.outcomes import Claimed, Ended, Outcome, Success


class Taker:
    """A registered worker on the connection of the thread that makes it."""

    def __init__(self, name: str = "taker", *, queues: Collection[str] | None = None) -> None:
        self.db = Database("default")
        self.worker_id = maintenance.register_worker(
            self.db, name, queues=sorted(queues or ()), threads=8, now=self.db.clock()
        )
        self._queues = None if queues is None else frozenset(queues)

    def run(self, *, slots: int = 8, ended: Sequence[Ended] = (), wait: bool = True) -> Pass:
        """Run one pass."""
        request = Request(
            worker_id=self.worker_id,
            slots=slots,
            queues=self._queues,
            handles=lambda _: True,
            ended=ended,
        )
        return run_pass(self.db, request, wait=wait)

    def run_as_dispatcher(self, *, slots: int = 8, ended: Sequence[Ended] = ()) -> Pass:
        """Run one pass, and where locks were not to be had in time, one that does not wait."""
        try:
            return self.run(slots=slots, ended=ended)
        except Error as error:
            if not is_lock_timeout(error):
                raise
        return self.run(slots=slots, ended=ended, wait=False)

    def finish(
        self, jobs: Collection[Claimed], outcome: Outcome | None = None, *, slots: int = 0
    ) -> Pass:
        """Settle jobs that ended, and claim nothing unless there are *slots*."""
        return self.run(slots=slots, ended=[Ended(job, outcome or Success()) for job in jobs])
