"""The profile of hypothesis for all tests.

A loaded machine does not fail a test for being slow. In CI (CI=true) the examples are the same in every run, so a
failure there is never a matter of luck; on a developer's machine they are new each time.
"""

import os

from hypothesis import settings

settings.register_profile("unhurried", deadline=None, derandomize=os.environ.get("CI", "") not in ("", "0", "false"))
settings.load_profile("unhurried")
