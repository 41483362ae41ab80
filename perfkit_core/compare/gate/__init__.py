"""The gate of a comparison: conditions, the numbers that they test, and outcomes."""
