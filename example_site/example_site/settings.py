"""Settings of the example site, for your own machine alone.

`DATABASE_URL` names the database; without it that is the SQLite file beside `manage.py`.
"""

import os
from pathlib import Path
from typing import Any

import dj_database_url

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "no secret: this site is an example"
# The dispatchers of the demo switch it off: with it, Django keeps a log of every query.
DEBUG = os.environ.get("DEBUG", "1") == "1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_zizq",
    "shop",
]


def _database(url: str | None) -> dict[str, Any]:
    database: dict[str, Any] = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "shop.sqlite3",
    }
    if url is not None:
        database = {**dj_database_url.parse(url)}
    # Handlers run in threads that live long, so their connections may too.
    database["CONN_MAX_AGE"] = 60
    if database["ENGINE"] == "django.db.backends.sqlite3":
        # What django_zizq needs on SQLite; its system checks say so where it is missing.
        database["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    return database


DATABASES = {"default": _database(os.environ.get("DATABASE_URL"))}

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
ROOT_URLCONF = "example_site.urls"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
