"""Tests of the verdicts, and of predictions compared with measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit_core.errors import UsageError
from perfkit_core.measure.verify.outcome import Fit, Verdict, fit, saving_error, step_error, verdict
from perfkit_core.measure.verify.prediction import Predicted, from_file, from_numbers
from perfkit_core.measure.verify.statistics import Measured, measured


def made(saving: float, low: float, high: float, noise: float = 0.01) -> Measured:
    return Measured(100.0, 100 * (1 - saving), saving, low, high, noise, 10, 10)


FIFTH = Predicted(base_ns=1000, p10_ns=700, p50_ns=800, p90_ns=900)
"""A saving of 20 %, between 10 and 30 %."""


@pytest.mark.parametrize(
    ("runs", "alone", "predicted"),
    [
        (made(0.2, 0.1, 0.3), Verdict.HELPS, Verdict.VERIFIED),
        (made(0.05, 0.02, 0.08), Verdict.HELPS, Verdict.LESS),
        (made(0.35, 0.3, 0.4), Verdict.HELPS, Verdict.MORE),
        (made(-0.1, -0.2, -0.05), Verdict.SLOWER, Verdict.SLOWER),
        (made(0.05, -0.05, 0.15), Verdict.CANNOT_TELL, Verdict.CANNOT_TELL),  # the interval contains the predicted 10 %
        (made(0.05, 0.02, 0.08, noise=0.06), Verdict.SAME, Verdict.REFUTED),  # the interval excludes 10 %
        (made(0.05, 0.02, 0.08, noise=0.12), Verdict.SAME, Verdict.SAME),  # the noise exceeds 10 %
        (made(-0.05, -0.08, -0.02, noise=0.06), Verdict.SAME, Verdict.REFUTED),
        (made(0.0, 0.0, 0.0, noise=0.0), Verdict.SAME, Verdict.REFUTED),
    ],
)
def test_verdicts(runs: Measured, alone: Verdict, predicted: Verdict) -> None:
    assert verdict(runs) is alone
    assert verdict(runs, FIFTH) is predicted


@pytest.mark.parametrize(
    ("saving", "expected"),
    [(0.05, Fit.LESS), (0.1, Fit.AS_PREDICTED), (0.3, Fit.AS_PREDICTED), (0.35, Fit.MORE), (-0.1, Fit.LESS)],
)
def test_the_verdict_does_not_depend_on_the_size(saving: float, expected: Fit) -> None:
    assert fit(made(saving, saving, saving), FIFTH) is expected


def test_errors_are_signed_and_scaled_to_the_measured_base() -> None:
    """A saving of 20 % was predicted and 25 % was measured, so the predicted saving is a fifth too small. For a
    measured base of 100, the predicted step of 80 is one fifteenth longer than the measured step of 75."""
    runs = made(0.25, 0.2, 0.3)
    assert saving_error(runs, FIFTH) == pytest.approx(-0.2)
    assert step_error(runs, FIFTH) == pytest.approx(80 / 75 - 1)


def test_the_error_of_a_saving_that_was_a_loss_has_a_sign_too() -> None:
    """A saving of 20 % was predicted and a loss of 10 % was measured. The error is 30 points, three times the measured
    value."""
    assert saving_error(made(-0.1, -0.1, -0.1), FIFTH) == pytest.approx(3)
    assert saving_error(made(0.0, 0.0, 0.0), FIFTH) is None


def test_a_prediction_from_numbers() -> None:
    assert from_numbers("1000,700,800,900") == FIFTH
    assert from_numbers("1000:700:800:900") == FIFTH


@pytest.mark.parametrize(
    "text", ["", "1000", "1000,700,800", "1000,a,800,900", "0,1,2,3", "1000,900,800,700", "1,-1,1,1"]
)
def test_what_is_no_prediction_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a prediction"):
        from_numbers(text)


def test_a_refusal_names_the_numbers() -> None:
    with pytest.raises(UsageError, match=r"^not a prediction: base 10, p10 9, p50 8, p90 7;"):
        from_numbers("10,9,8,7")


@pytest.fixture
def advice(tmp_path: Path) -> Path:
    numbers = {"method": "replay", "base_ns": 1000, "p10_ns": 700, "p50_ns": 800, "p90_ns": 900, "saving_ns": 200}
    none = {"method": "none", "base_ns": 1000, "p10_ns": None, "p50_ns": None, "p90_ns": None}
    content = {
        "advice": [
            {"id": "loader-workers:1a", "rule": "loader-workers", "prediction": numbers},
            {"id": "data-parallel:2b", "rule": "data-parallel", "prediction": none},
        ]
    }
    path = tmp_path / "ad:vice.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("wanted", ["loader-workers:1a", "loader-workers"])
def test_a_prediction_from_a_file(advice: Path, wanted: str) -> None:
    predicted = from_file(f"{advice}:{wanted}")
    assert predicted == Predicted(1000, 700, 800, 900, "loader-workers:1a", "loader-workers")


def test_the_advice_of_a_real_pair(traces: Path, tmp_path: Path) -> None:
    """ResNet50 was recorded with 0 and 4 loader workers. The second recording verifies a prediction for the first
    recording. The measured step lies within the predicted interval."""
    from perfkit_core.cli.main import main

    file = tmp_path / "advice.json"
    source = traces / "torch" / "pairs" / "resnet50-workers0.json.gz"
    assert main(["advise", str(source), "--rule", "loader-workers", "-o", str(file)]) == 0
    predicted = from_file(f"{file}:loader-workers")
    assert (predicted.rule, predicted.framework) == ("loader-workers", "torch")
    assert 0.95 * 176_273_000 < predicted.base_ns < 176_273_000  # the recorded step, less the work of the profiler
    found = measured([176.273] * 4, [126.5] * 4)
    assert verdict(found, predicted) is Verdict.VERIFIED
    assert fit(found, predicted) is Fit.AS_PREDICTED
    saved = 1 - predicted.p50_ns / predicted.base_ns
    assert saving_error(found, predicted) == pytest.approx(saved / (1 - 126_500 / 176_273) - 1)
    assert step_error(found, predicted) == pytest.approx((1 - saved) / (126_500 / 176_273) - 1)


def test_the_interval_of_a_saving_is_narrower_than_that_of_steps(advice: Path) -> None:
    """Steps differ by a third, so a single step that takes 10 % longer could be chance. But the predicted saving is 5
    to 25 %, so a change that makes steps 10 % longer contradicts the prediction."""
    content = json.loads(advice.read_text(encoding="utf-8"))
    content["advice"][0]["prediction"] |= {"p90_ns": 1200, "saving_p10_ns": 50, "saving_p90_ns": 250}
    advice.write_text(json.dumps(content), encoding="utf-8")
    predicted = from_file(f"{advice}:loader-workers")
    assert (predicted.saving_low, predicted.saving, predicted.saving_high) == pytest.approx((0.05, 0.2, 0.25))
    assert fit(made(-0.1, -0.1, -0.1), predicted) is Fit.LESS
    assert verdict(made(0.0, -0.04, 0.04), predicted) is Verdict.REFUTED


def test_files_without_a_prediction_raise_errors(advice: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="choose one of loader-workers:1a, data-parallel:2b"):
        from_file(f"{advice}:other")
    with pytest.raises(UsageError, match="has no prediction"):
        from_file(f"{advice}:data-parallel")
    with pytest.raises(UsageError, match="no such file"):
        from_file(f"{tmp_path}/nothing.json:x")
    (tmp_path / "list.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(UsageError, match="contains no advice"):
        from_file(f"{tmp_path}/list.json:x")
