"""A regression that is planted in a script of examples/compare is the first cause that a comparison shows.

The recordings are those of tests/data/examples. Each regression is looked up in the table that shows it: operator
families for a copy, layers for a slower or an additional layer, and step categories for the loader. Within a framework,
the script with the regression is compared with the script without it. Across frameworks, a regression that is larger
than the difference between the frameworks is the first cause of a direct comparison. A smaller one is the first cause
with ``--against``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from perfkit_core.compare.against import new_causes, new_layers
from perfkit_core.compare.attribute.causes import by_layer, causes
from perfkit_core.compare.report import comparison_report
from perfkit_core.trace.model.trace import Trace
from tests.support.compared import attributed
from tests.support.compared_examples import BASE, FRAMEWORKS, PLANTS, stored

OTHER_FRAMEWORK = dict(zip(FRAMEWORKS, reversed(FRAMEWORKS), strict=True))
ANSWERS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str, str]] = {
    "copy": (causes, "family", "copy"),
    "activation": (by_layer, "layer", "blocks.0.activation|blocks.1.activation"),
    "layer": (by_layer, "layer", "blocks.2.linear"),
    "loader": (causes, "category", "input"),
}
"""For each regression: its table of the attribution, the column with the names, and the names that may come first."""
NEW = {causes: new_causes, by_layer: new_layers}


def difference_ns(plant: str, base: Trace, other: Trace) -> pd.Series[int]:
    """Return the difference for each name in the table for this regression."""
    table, column, _ = ANSWERS[plant]
    return table(attributed(base, other)).groupby(column)["difference_ns"].sum()


def assert_first(plant: str, differences: pd.Series[int]) -> None:
    """Check that the planted regression is the largest difference, and that it makes the step longer."""
    name = differences.index[np.argmax(differences.abs().to_numpy())]
    assert name in ANSWERS[plant][2].split("|"), differences.sort_values(key=abs).tail(5).to_dict()
    assert differences[name] > 0


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_within_a_framework_the_planted_regression_is_first(framework: str, plant: str) -> None:
    assert_first(plant, difference_ns(plant, stored(framework, "mlp", BASE), stored(framework, "mlp", plant)))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_run_that_does_more_is_comparable(framework: str) -> None:
    """The copies take most of the operator time of the run that has them."""
    report = comparison_report(stored(framework, "mlp", BASE), stored(framework, "mlp", "copy"))
    sentences = [text if isinstance(text, str) else text.template for text in report.headline]
    assert not any("barely comparable" in text for text in sentences)
    assert any(text.startswith("By category") for text in sentences)


@pytest.mark.parametrize("plant", ["copy", "loader"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_across_frameworks_a_large_planted_regression_is_first(framework: str, plant: str) -> None:
    base, planted = stored(OTHER_FRAMEWORK[framework], "mlp", BASE), stored(framework, "mlp", plant)
    assert_first(plant, difference_ns(plant, base, planted))


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_against_the_plain_scripts_the_planted_regression_is_first(framework: str, plant: str) -> None:
    """``perfkit compare --against`` subtracts the difference between the frameworks' scripts without the regression."""
    base = stored(OTHER_FRAMEWORK[framework], "mlp", BASE)
    before, now = (attributed(base, stored(framework, "mlp", variant)) for variant in (BASE, plant))
    table, column, _ = ANSWERS[plant]
    assert_first(plant, NEW[table](before, now).groupby(column)["difference_ns"].sum())
