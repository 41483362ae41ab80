"""Access to the operating system, the machine, stores, and installed packages."""
