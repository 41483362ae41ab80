"""Reports: the sections of tables, sentences and charts that renderers format."""
