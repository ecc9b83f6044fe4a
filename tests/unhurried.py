"""Imported by tests that use hypothesis: a loaded machine must not fail a test for being slow."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
