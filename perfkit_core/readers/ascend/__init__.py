"""Readers of what the profiler of Ascend NPUs writes, as text and as a database."""
