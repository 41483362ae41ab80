"""Lines of Python: the tree of calls, and the stacks of operators."""
