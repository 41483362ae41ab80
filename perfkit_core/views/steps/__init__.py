"""Views of steps and of their parts."""
