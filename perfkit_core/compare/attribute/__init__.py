"""Attribution of the difference between two runs to categories, layers, operators and kernels."""
