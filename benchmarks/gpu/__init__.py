"""Recordings and measurements on a real GPU: ``python -m benchmarks.gpu.record``."""
