"""Views of FLOPs and bytes against the peak rates of the device."""
