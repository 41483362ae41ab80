"""The HTML renderer: the page, its sections, and the data of its scripts."""
