"""What of one run corresponds to what of another."""
