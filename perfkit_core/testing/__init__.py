"""Checks that adapters and plugins run in their own tests: :mod:`perfkit_core.testing.conformance`."""
