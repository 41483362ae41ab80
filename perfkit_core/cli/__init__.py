"""The command line. Each module defines one command. The command's docstring is its help text."""
