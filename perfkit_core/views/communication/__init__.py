"""Communication between processes, and what of it computation hides."""
