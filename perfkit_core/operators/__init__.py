"""What operators and kernels compute, in words that all frameworks share."""
