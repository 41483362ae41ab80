"""Stored runs: Parquet files, their metadata, and the writing of complete files."""
