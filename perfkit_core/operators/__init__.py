"""Names of operators and kernels that are shared by all frameworks."""
