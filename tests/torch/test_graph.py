"""In a live run, each backward node is linked to the forward operator that its name refers to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_core.plugins.contracts import ViewRequest  # noqa: E402
from perfkit_core.readers.load import load  # noqa: E402
from perfkit_core.views.operators import calls, graph  # noqa: E402
from perfkit_torch import trace_handler  # noqa: E402
from tests.support.torch_models import MODELS, train  # noqa: E402


def plain(name: str) -> str:
    return name.rpartition(":")[2].strip().removesuffix("Backward0").replace("_", "").lower()


@pytest.mark.parametrize("model", MODELS)
def test_every_backward_node_has_its_forward_operator(model: str, tmp_path: Path) -> None:
    """PowBackward0 is the node of aten::pow, and TBackward0 is the node of aten::t."""
    handler = trace_handler(tmp_path)
    train(model, handler)
    trace = load(handler.written[0])
    table = graph.table(trace, ViewRequest(steps=(2,)))
    nodes = np.flatnonzero((calls.outermost(trace) == np.arange(len(trace))) & (trace.ints("step") == 2))
    names = trace.events["name"].to_pylist()
    inside = {row: {plain(names[r]) for r in np.flatnonzero(calls.outermost(trace) == row)} for row in nodes}
    checked = 0
    for _, row in table[table["name"].str.contains("Backward0")].iterrows():
        assert row["forward_by"] == "sequence", row["name"]
        forward = inside[nodes[row["forward"]]]
        assert plain(row["name"]) in forward, (row["name"], forward)
        checked += 1
    print(f"{model}: {checked} backward nodes tied")
    assert checked == table["name"].str.contains("Backward0").sum() > 3
    assert json.loads(table.to_json())
