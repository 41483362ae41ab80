"""What perfkit costs, beside the tools that do the same: ``python -m benchmarks --help``."""
