"""The gate of a comparison: its conditions, the numbers that they test, and their outcomes."""
