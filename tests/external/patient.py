"""A pytest plugin: hypothesis waits for a compiler. A first call compiles, which is no sign of a slow test."""

from hypothesis import HealthCheck, settings

_load = settings.load_profile


def _patient(name: str) -> None:
    kept = settings.get_profile(name)
    settings.register_profile("patient", kept, deadline=None, suppress_health_check=list(HealthCheck))
    _load("patient")


settings.load_profile = _patient  # type: ignore[method-assign]
