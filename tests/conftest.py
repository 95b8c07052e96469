"""How hard Hypothesis tries: a little with every test run, a lot with LEFTOFF_LONG=1."""

import os

from hypothesis import HealthCheck, settings

common = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=40, stateful_step_count=30, **common)
settings.register_profile("long", max_examples=1_000, stateful_step_count=50, **common)
settings.load_profile("long" if os.environ.get("LEFTOFF_LONG") else "quick")
