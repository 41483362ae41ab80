"""The command line. Each module holds one command; the command's docstring is its help text."""
