"""What operators compute and move, against what the device could do."""
