"""Measured costs of small operations on this machine. Predictions use them if the recording has no measurement.

``bench`` defines the calls that a framework offers for timing. ``calibrate`` measures these calls and stores the
results."""
