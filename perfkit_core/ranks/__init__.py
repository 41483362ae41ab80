"""Profiles of many ranks. Each rank is read and reduced separately; then the partials of all ranks are merged."""
