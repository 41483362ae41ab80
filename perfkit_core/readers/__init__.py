"""Readers of sources, one format a file, and what they share."""
