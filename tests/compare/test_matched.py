"""If both frameworks train the same model, nearly all time of one framework has a counterpart in the other framework.

The recordings are those of tests/data/examples.
"""

from __future__ import annotations

import pytest

from perfkit_core.compare.align.align import align
from tests.support.compared_examples import BASE, FRAMEWORKS, MODELS, PLAIN, stored

MATCHED = 0.9
SIDES = ("base", "other")


@pytest.mark.parametrize("model", MODELS)
def test_nearly_all_step_time_is_matched_by_operator_and_phase(model: str) -> None:
    """The bias of a linear layer is a separate operator in Paddle, and a part of the matrix product in torch. It is
    matched too."""
    shares = align(*(stored(framework, model, PLAIN) for framework in FRAMEWORKS)).matched_share
    for side in SIDES:
        assert shares[side]["layer"]["step"] == 0.0  # no layers are labelled
        assert shares[side]["operator"]["step"] >= MATCHED


@pytest.mark.parametrize("model", MODELS)
def test_nearly_all_operators_of_labelled_layers_are_matched(model: str) -> None:
    """The loader and the optimizer have no layer. They are matched by operators."""
    shares = align(*(stored(framework, model, BASE) for framework in FRAMEWORKS)).matched_share
    for side in SIDES:
        assert shares[side]["layer"]["cpu"] >= MATCHED
        assert shares[side]["operator"]["step"] >= MATCHED
