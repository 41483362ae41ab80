"""Profiles of many ranks: each rank is read and reduced separately, then the partials are merged."""
