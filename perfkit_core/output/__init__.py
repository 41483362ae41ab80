"""From tables to text: reports are made of sections (``report``), which renderers format (``renderers``)."""
