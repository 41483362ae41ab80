"""The account of a step: where each nanosecond went, and what the host did while it held a device back."""
