"""The notebooks of the documentation run, and their saved outputs are those of a new run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from docs.blocks import prepare
from tests.support.paths import ROOT

pytest.importorskip("nbclient", reason="notebooks are run by nbclient")
pytest.importorskip("ipykernel", reason="notebooks are run by ipykernel")

from tools.notebooks import executed


def outputs(notebook: Any) -> list[tuple[str, list[tuple[str, str | None]]]]:
    """Return the code of each cell with its outputs: text, and HTML of perfkit. HTML of pandas is left out."""
    result = []
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        data = [(output.get("data") or {"text/plain": output.get("text", "")}) for output in cell.outputs]
        html = [each.get("text/html", "") for each in data]
        shown = [
            (each["text/plain"], page if 'class="perfkit"' in page else None)
            for each, page in zip(data, html, strict=True)
        ]
        result.append((cell.source, shown))
    return result


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the client of the kernel
@pytest.mark.parametrize("name", ["record", "results"])
def test_a_new_run_has_the_saved_outputs(name: str, tmp_path: Path) -> None:
    import nbformat

    if name == "record":
        pytest.importorskip("torch", reason="the notebook records a training of torch")
    path = ROOT / "docs" / "notebooks" / f"{name}.ipynb"
    saved = outputs(nbformat.read(path, as_version=4))
    assert outputs(executed(path, prepare(tmp_path))) == saved, "run: python tools/notebooks.py"
    assert sum(len(shown) for _, shown in saved) >= 2
