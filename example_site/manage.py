#!/usr/bin/env python3
"""The commands of the example site; `./dev demo` runs `manage.py demo`."""

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_site.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
