"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# How fast a machine is, or how busy, says nothing about the code.
settings.register_profile(
    'any-machine',
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile('any-machine')
