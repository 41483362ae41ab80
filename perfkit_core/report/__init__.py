"""Reports: sections of tables, sentences and charts, as renderers receive them."""
