"""Views of operators and labelled ranges."""
