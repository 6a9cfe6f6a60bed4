"""How the properties are searched: the same examples in every run.

``derandomize`` derives them from the test itself, so a red build is red again on the next machine.
For a fresh search, set ``EXPLORE=1``: examples then differ from run to run.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "properties",
    derandomize="EXPLORE" not in os.environ,
    deadline=None,
    print_blob=True,
    # A federation is many draws; the machine's load must not decide over red or green.
    suppress_health_check=[HealthCheck.too_slow],
)
