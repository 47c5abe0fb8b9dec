"""A slow machine is no failure, and nothing is written beside the code."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "django_zizq",
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("django_zizq")
