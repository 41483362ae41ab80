"""The HTML renderer: the page, its sections, and the data for the scripts of the page."""
