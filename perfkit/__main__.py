"""Run the command ``perfkit`` as ``python -m perfkit``."""

from __future__ import annotations

import sys

from perfkit_core.cli.main import main

sys.exit(main())
