"""perfkit for MindSpore: a reader for the timelines of MindSpore's profiler. This package imports no framework."""
