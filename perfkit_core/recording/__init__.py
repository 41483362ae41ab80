"""What every live recording shares, whatever the framework."""
