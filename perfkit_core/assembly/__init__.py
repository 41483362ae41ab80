"""What is worked out once for every source: launches, steps, phases."""
