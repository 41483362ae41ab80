"""Profiles of many ranks. Each rank is read by itself and reduced to partial results, which are then merged."""
