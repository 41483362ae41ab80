"""Run the notebooks of the documentation and save their outputs: ``python tools/notebooks.py``.

Notebooks run in a folder with sample recordings (docs/blocks.py). Outputs that differ in each run, such as recordings,
are not saved: their cells have the tag ``live``.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbclient
import nbformat

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
LIVE = "live"
_SECONDS = 600


def executed(path: Path, folder: Path) -> Any:
    """Return the notebook with the outputs of a new run in ``folder``. Raises CellExecutionError if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.metadata = {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}
    resources = {"metadata": {"path": str(folder)}}
    # advice must not depend on what was measured on this machine
    environment = os.environ | {"XDG_CACHE_HOME": f"{folder}/cache", "XDG_STATE_HOME": f"{folder}/state"}
    client = nbclient.NotebookClient(notebook, timeout=_SECONDS, resources=resources, record_timing=False)
    client.execute(env=environment)
    for cell in notebook.cells:
        if cell.cell_type == "code" and LIVE in cell.metadata.get("tags", ()):
            cell.outputs, cell.execution_count = [], None
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return notebook


def main() -> int:
    sys.path.insert(0, str(ROOT))
    from docs.blocks import prepare

    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(path, prepare(Path(folder))), path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
