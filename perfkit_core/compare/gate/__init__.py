"""Has something become worse than it may? Conditions, the numbers that they ask of, and outcomes."""
