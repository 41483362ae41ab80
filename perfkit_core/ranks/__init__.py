"""Profiles of many ranks: each rank is read and reduced on its own, then the reductions are merged."""
