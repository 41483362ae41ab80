"""The same model is recorded in both frameworks. It trains the same way, and nearly all of its time is matched."""

from __future__ import annotations

import pytest

from perfkit_core.compare.align.align import align
from tests.support.live_examples import BASE, FRAMEWORKS, MODELS, PLAIN, Example, holds

MATCHED = 0.9
SIDES = ("base", "other")


@pytest.fixture(scope="module", params=MODELS)
def examples(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    """Return the recordings of torch and Paddle."""
    folder = tmp_path_factory.mktemp(request.param)
    found = [Example(framework, request.param, folder / framework, (PLAIN, BASE)) for framework in FRAMEWORKS]
    for example in found:
        example.record()
    return found


def test_both_frameworks_train_the_same_model(examples: list[Example]) -> None:
    """Weights, data and arithmetic are equal, so the losses of both frameworks are equal in every step, and they
    decrease."""
    torch, paddle = (example.losses for example in examples)
    assert len(torch) == len(paddle) == 4
    for losses in torch + paddle:
        assert losses == pytest.approx(torch[0], abs=1e-3)
        assert len(losses) == 9
        assert losses[-1] < losses[0]


def test_nearly_all_of_the_step_is_matched_by_operator_and_phase(examples: list[Example]) -> None:
    """This includes the bias of linear layers: Paddle adds it with a separate operator, torch inside the product."""

    def check() -> None:
        found = align(*(example.fastest(PLAIN) for example in examples)).matched_share
        for side in SIDES:
            assert found[side]["layer"]["step"] == 0.0  # there are no annotations
            assert found[side]["operator"]["step"] >= MATCHED

    holds(check, *examples)


def test_nearly_all_operators_of_labelled_layers_are_matched(examples: list[Example]) -> None:
    """The loader and the optimizer have no layer. Nearly the whole step is matched at the level ``operator``."""

    def check() -> None:
        found = align(*(example.fastest(BASE) for example in examples)).matched_share
        for side in SIDES:
            assert found[side]["layer"]["cpu"] >= MATCHED
            assert found[side]["operator"]["step"] >= MATCHED

    holds(check, *examples)
