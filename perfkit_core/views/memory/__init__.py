"""Views of recorded allocations and frees."""
