"""The same model in both frameworks, recorded here: it trains the same, and nearly all of its time has a partner."""

from __future__ import annotations

import pytest

from perfkit_core.compare.align.align import align
from tests.support.live_examples import BASE, FRAMEWORKS, MODELS, PLAIN, Example, holds

MATCHED = 0.9
SIDES = ("base", "other")


@pytest.fixture(scope="module", params=MODELS)
def examples(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    """Of torch and Paddle."""
    folder = tmp_path_factory.mktemp(request.param)
    found = [Example(framework, request.param, folder / framework, (PLAIN, BASE)) for framework in FRAMEWORKS]
    for example in found:
        example.record()
    return found


def test_both_frameworks_train_the_same_model(examples: list[Example]) -> None:
    """Equal weights, data and arithmetic: the frameworks' own losses are the same in every step, and fall."""
    torch, paddle = (example.losses for example in examples)
    assert len(torch) == len(paddle) == 4
    for losses in torch + paddle:
        assert losses == pytest.approx(torch[0], abs=1e-3)
        assert len(losses) == 9
        assert losses[-1] < losses[0]


def test_nearly_all_of_the_step_is_matched_by_operator_and_phase(examples: list[Example]) -> None:
    """Also the bias of linear layers, which Paddle adds by an operator of its own and torch within the product."""

    def check() -> None:
        found = align(*(example.fastest(PLAIN) for example in examples)).matched_share
        for side in SIDES:
            assert found[side]["layer"]["step"] == 0.0  # nobody labelled any
            assert found[side]["operator"]["step"] >= MATCHED

    holds(check, *examples)


def test_nearly_all_operators_of_labelled_layers_are_matched(examples: list[Example]) -> None:
    """The loader and the optimizer have no layer; the whole step is matched with what operators add to the layers."""

    def check() -> None:
        found = align(*(example.fastest(BASE) for example in examples)).matched_share
        for side in SIDES:
            assert found[side]["layer"]["cpu"] >= MATCHED
            assert found[side]["operator"]["step"] >= MATCHED

    holds(check, *examples)
