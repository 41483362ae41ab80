"""Write all inputs: ``python -m tests.data.reports FOLDER``, from the root of the repository."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.data.reports import write_all

if __name__ == "__main__":
    for path in write_all(Path(sys.argv[1])):
        print(path)
