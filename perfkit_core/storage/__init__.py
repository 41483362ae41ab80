"""How is a run kept: its files, what stands in them, and how a file is written whole or not at all."""
