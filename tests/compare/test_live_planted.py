"""A regression is planted in a script of examples/compare, and the comparison must report it as the first cause."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from perfkit_core.compare.attribute.attribute import attribute
from perfkit_core.compare.attribute.causes import by_layer, causes
from perfkit_core.compare.change import new_causes, new_layers
from perfkit_core.model.trace import Trace
from tests.support.live_examples import BASE, FRAMEWORKS, PLANTS, Example, holds

OTHER_FRAMEWORK = dict(zip(FRAMEWORKS, reversed(FRAMEWORKS), strict=True))
ASKED: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str, str]] = {
    "copy": (causes, "family", "copy"),
    "activation": (by_layer, "layer", "blocks.0.activation|blocks.1.activation"),
    "layer": (by_layer, "layer", "blocks.2.linear"),
    "loader": (causes, "category", "input_wait"),
}
"""Regression → table that must show it, column, and the name that must be first (or one of two names)."""
NEW = {causes: new_causes, by_layer: new_layers}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Example]:
    """Return the recordings by framework."""
    folder = tmp_path_factory.mktemp("planted")
    found = {name: Example(name, "mlp", folder / name, (BASE, *PLANTS)) for name in FRAMEWORKS}
    for example in found.values():
        example.record()
    return found


def difference_ns(plant: str, base: Trace, other: Trace) -> pd.Series[int]:
    """Return the differences by name from the table that fits the planted regression."""
    table, column, _ = ASKED[plant]
    return table(attribute(base, other)).groupby(column)["difference_ns"].sum()


def assert_first(plant: str, found: pd.Series[int]) -> None:
    """Assert that the largest difference is the planted one, and that it makes the step longer."""
    name = found.index[np.argmax(found.abs().to_numpy())]
    assert name in ASKED[plant][2].split("|"), found.sort_values(key=abs).tail(5).to_dict()
    assert found[name] > 0


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_planted_regressions_train_as_planted(framework: str, examples: dict[str, Example]) -> None:
    """Copies and sleeps do not change the losses; another activation and another layer do. Both frameworks agree."""
    base, copy, activation, layer, loader = examples[framework].losses[:5]
    assert base == pytest.approx(copy, abs=1e-4)
    assert base == pytest.approx(loader, abs=1e-4)
    assert base != pytest.approx(activation, abs=1e-3)
    assert base != pytest.approx(layer, abs=1e-3)
    others = examples[OTHER_FRAMEWORK[framework]].losses[:5]
    for mine, theirs in zip((base, copy, activation, layer, loader), others, strict=True):
        assert mine == pytest.approx(theirs, abs=1e-3)


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_within_a_framework_the_planted_regression_is_first(
    framework: str, plant: str, examples: dict[str, Example]
) -> None:
    example = examples[framework]

    def check() -> None:
        assert_first(plant, difference_ns(plant, example.fastest(BASE), example.fastest(plant)))

    holds(check, example)


@pytest.mark.parametrize("plant", ["copy", "loader"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_across_frameworks_a_large_planted_regression_is_first(
    framework: str, plant: str, examples: dict[str, Example]
) -> None:
    """The base was recorded with the other framework."""
    base, planted = examples[OTHER_FRAMEWORK[framework]], examples[framework]

    def check() -> None:
        assert_first(plant, difference_ns(plant, base.fastest(BASE), planted.fastest(plant)))

    holds(check, base, planted)


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_across_frameworks_the_planted_regression_is_first_new(
    framework: str, plant: str, examples: dict[str, Example]
) -> None:
    """The regression is smaller than the usual difference between the frameworks, so ``perfkit compare --against`` must
    report it."""
    base, planted = examples[OTHER_FRAMEWORK[framework]], examples[framework]

    def check() -> None:
        before, now = (attribute(base.fastest(BASE), planted.fastest(variant)) for variant in (BASE, plant))
        table, column, _ = ASKED[plant]
        assert_first(plant, NEW[table](before, now).groupby(column)["difference_ns"].sum())

    holds(check, base, planted)
