"""Measurements on this machine: of changes (``verify``), and of small operations (``calibration``)."""
