"""Canonical names of operators, and families of operators and kernels, for all frameworks."""
