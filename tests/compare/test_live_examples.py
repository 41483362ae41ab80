"""The scripts of examples/compare, recorded live: they train as described, and record the same events as in
tests/data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from tests.support.compared_examples import BASE, FRAMEWORKS, MODELS, PLAIN, PLANTS, VARIANTS, record, recorded, stored

pytestmark = [pytest.mark.live, pytest.mark.slow]

Losses = dict[tuple[str, str], list[float]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def losses(folder: Path) -> dict[str, Losses]:
    """Return the losses of the steps by framework, model and variant."""
    return {
        framework: dict(zip(VARIANTS, record(framework, folder / framework), strict=True)) for framework in FRAMEWORKS
    }


@pytest.mark.parametrize("model", MODELS)
def test_both_frameworks_train_the_same_model(model: str, losses: dict[str, Losses]) -> None:
    """Both frameworks start with equal weights and data and do the same arithmetic, so they print equal losses. The
    losses fall."""
    expected = losses["torch"][model, PLAIN]
    assert len(expected) == 9
    assert expected[-1] < expected[0]
    for framework in FRAMEWORKS:
        for variant in (PLAIN, BASE):
            assert losses[framework][model, variant] == pytest.approx(expected, abs=1e-3)


def test_planted_regressions_train_as_planted(losses: dict[str, Losses]) -> None:
    """Copies and sleeps do not change the losses. Another activation and an additional layer do. Both frameworks have
    the same losses."""
    for framework in FRAMEWORKS:
        base, copy, activation, layer, loader = (losses[framework]["mlp", variant] for variant in (BASE, *PLANTS))
        assert base == pytest.approx(copy, abs=1e-4)
        assert base == pytest.approx(loader, abs=1e-4)
        assert base != pytest.approx(activation, abs=1e-3)
        assert base != pytest.approx(layer, abs=1e-3)
    for plant in PLANTS:
        assert losses["torch"]["mlp", plant] == pytest.approx(losses["paddle"]["mlp", plant], abs=1e-3)


@pytest.mark.parametrize(("model", "variant"), VARIANTS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_scripts_record_the_events_that_are_stored(
    framework: str, model: str, variant: str, folder: Path, losses: dict[str, Losses]
) -> None:
    """The stored recordings are like new ones, so test_planted and test_matched, which use stored recordings, are valid
    for new recordings too."""
    (run,) = recorded(folder / framework, model, variant)
    assert calls(load(run)) == calls(stored(framework, model, variant))


def calls(trace: Trace) -> Counter[tuple[str, str, str]]:
    """Count the operators of the steps by name, phase and layer."""
    events = trace.to_pandas()
    operators = events[trace.operators & events["step"].notna()]
    return Counter(operators[["name", "phase", "module"]].astype(str).itertuples(index=False, name=None))
