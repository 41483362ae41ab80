"""Helpers for tests: hand-made traces, recordings, and readers that do not use perfkit."""
