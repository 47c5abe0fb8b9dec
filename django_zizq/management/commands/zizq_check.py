"""``manage.py zizq_check``: verify what is stored, and mend it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import router

from django_zizq.console import require_tables
from django_zizq.dialect import Database
from django_zizq.integrity import Finding, check
from django_zizq.management.subcommands import in_one_line
from django_zizq.models import Job


class Command(BaseCommand):
    help = (
        "Verify that budgets and queued jobs are stored as they must be: tokens in use match the "
        "jobs in flight, no pool holds more than it can, jobs stand in their lines and are bound "
        "to budgets that can pay them, and every job in flight has a worker that is alive. Safe "
        "beside running dispatchers. Exit code 1 where something is found that is not repaired."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--repair", action="store_true", help="Mend what can be mended.")
        parser.add_argument("--json", action="store_true", help="Print the findings as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        using = router.db_for_write(Job)
        with in_one_line(using):
            require_tables(using)
            findings = self._findings(Database(using), options)
            self.stdout.flush()
        left = sum(not finding.is_repaired for finding in findings)
        if left:
            hint = "look at them one by one" if options["repair"] else "run it with --repair"
            raise CommandError(f"{_count(left)} to mend: {hint}.", returncode=1)
        if not options["json"]:
            self.stdout.write(f"{_count(len(findings))} repaired." if findings else "All is well.")

    def _findings(self, db: Database, options: dict[str, Any]) -> list[Finding]:
        findings = []
        for finding in check(db, repair=options["repair"], now=db.clock()):
            findings.append(finding)
            if not options["json"]:
                self.stdout.write(str(finding))
        if options["json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=2))
        return findings


def _count(problems: int) -> str:
    return "1 problem" if problems == 1 else f"{problems} problems"
