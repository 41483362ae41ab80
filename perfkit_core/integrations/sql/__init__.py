"""SQL over the tables of a profile."""
