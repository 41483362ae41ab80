"""perfkit for MindSpore: reads the timelines of its profiler. Importing this imports no framework."""
