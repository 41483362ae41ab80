"""Measured costs of small operations on this machine. A prediction uses them for costs that the recording lacks.

``bench`` defines the calls that a framework offers for timing. ``calibrate`` measures them and stores the results."""
