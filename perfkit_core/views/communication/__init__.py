"""Views of communication between processes."""
