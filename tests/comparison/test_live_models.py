"""The same model in both frameworks, recorded here: it trains the same, and nearly all of its time has a partner."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from live_examples import FRAMEWORKS, MODELS, record, recorded

from perfkit_core.trace import Trace


@dataclass(frozen=True)
class Sides:
    """By framework: the recording, and the losses of the steps."""

    traces: dict[str, Trace]
    losses: dict[str, list[float]]


@pytest.fixture(scope="module", params=MODELS)
def sides(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sides:
    folder = tmp_path_factory.mktemp(request.param)
    losses = {framework: record(framework, request.param, folder / framework)[0] for framework in FRAMEWORKS}
    return Sides({framework: recorded(folder / framework) for framework in FRAMEWORKS}, losses)


def test_both_frameworks_train_the_same_model(sides: Sides) -> None:
    """Equal weights, data and arithmetic: the frameworks' own losses are the same, and fall."""
    torch, paddle = (sides.losses[framework] for framework in FRAMEWORKS)
    assert len(torch) == len(paddle) == 13
    assert torch == pytest.approx(paddle, abs=1e-3)
    assert torch[-1] < torch[0]
