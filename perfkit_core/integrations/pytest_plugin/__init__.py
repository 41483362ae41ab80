"""The pytest plugin: budgets of what a test may run, and baselines of what it ran."""
