"""The command line: one command a file, its help is its docstring. A command calls the Python functions and prints."""
