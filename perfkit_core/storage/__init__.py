"""Stored runs: Parquet files, their metadata, and atomic writing."""
