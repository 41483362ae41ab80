"""Views of device work, device utilisation, and the limits of devices."""
