"""Views of operators and annotations."""
