"""Views of devices: their work and utilisation."""
