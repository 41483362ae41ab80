"""Views of training steps and their parts."""
