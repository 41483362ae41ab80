"""Checks of an installation: packages, plugins, frameworks, GPU drivers, folders, terminal (``perfkit doctor``).

Each check is independent of the others. What may crash or hang runs in a new process with a time limit. The checks need
only the standard library, so that they also run if a dependency is broken."""
