"""Readers of sources. There is one module or package for each format. The other modules are shared by all formats."""
