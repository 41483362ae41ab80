"""Assembly of recorded events into the event table, shared by all sources."""
