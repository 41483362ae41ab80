"""Checks for the tests of adapters and plugins; see :mod:`perfkit_core.testing.conformance`."""
