"""Devices: what ran on them, and how busy they were."""
