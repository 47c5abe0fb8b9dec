"""The settings of the suite for a site that has USE_TZ off, far from UTC."""

from tests.settings import *  # noqa: F403

USE_TZ = False
TIME_ZONE = "America/New_York"
