"""Readers: one format a file. Each yields a Trace; everything they share is here too."""
