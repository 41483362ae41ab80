"""Attribution of a difference between two runs to categories, layers, operators and kernels."""
