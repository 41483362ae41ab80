"""Views of device work and device utilisation."""
