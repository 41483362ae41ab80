"""perfkit for MindSpore: a reader for the timelines of MindSpore's profiler. The import of this package imports no
framework."""
