"""A pytest plugin: hypothesis only has to find a failure, not to explain it. Loaded by tests.mutants."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "mutants",
    max_examples=40,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
