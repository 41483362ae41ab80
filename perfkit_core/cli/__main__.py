"""``python -m perfkit_core.cli`` is ``perfkit``."""

import sys

from perfkit_core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
