"""Predict what the fix of each pair saves, and compare the predictions with the measurements."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import perfkit_core.advice
from benchmarks.advice import truth
from benchmarks.advice.pairs import Pair
from benchmarks.advice.truth import Truth
from perfkit_core.advice.advice import Advice, Advices
from perfkit_core.measure.verify import ledger
from perfkit_core.measure.verify.ledger import Record
from perfkit_core.measure.verify.statistics import Measured

SHIPPED = Path(perfkit_core.advice.__file__).with_name("outcomes.jsonl")
LARGE = 0.10
"""A fix with a larger saving should be found."""
PROMISE = 0.03
"""A smaller predicted saving is no promise."""
BASE_ERROR = 0.12
"""A base error should not be larger."""


@dataclass(frozen=True)
class Score:
    """A measured pair, and the advice on its two recordings. Savings are shares of the step time of the base."""

    pair: Pair
    truth: Truth
    recording: Path
    before: Advices
    after: Advices

    @cached_property
    def measured(self) -> Measured:
        return self.truth.measured

    @property
    def advice(self) -> Advice | None:
        """The advice that suggests the fix: that of the pair's rule with the largest saving. None if there is none."""
        return self._suggested(self.before)

    @property
    def recorded_advice(self) -> Advice | None:
        """The advice whose outcome the ledger records. A rule that is silent because of its outcomes must not forget
        them, so this is then the advice that it gives without outcomes."""
        from perfkit_core.advice.engine import advise

        return self.advice if self.predicted else self._suggested(advise(self.recording, outcomes=[]))

    def _suggested(self, advices: Advices) -> Advice | None:
        found = [
            one for one in advices.advice if one.rule == self.pair.rule and self.pair.about in str(one.candidate.what)
        ]
        return max(found, key=lambda one: one.prediction.saving_ratio or 0.0, default=None)

    @property
    def predicted(self) -> tuple[float, float, float] | None:
        """The predicted saving: p10, p50 and p90. None without advice, or if the advice has no number."""
        prediction = self.advice.prediction if self.advice else None
        if prediction is None or prediction.saving_ns is None:
            return None
        low, high = prediction.saving_p10_ns or 0, prediction.saving_p90_ns or 0
        return low / prediction.base_ns, prediction.saving_ns / prediction.base_ns, high / prediction.base_ns

    @property
    def large(self) -> bool:
        return self.measured.better and self.measured.saving > LARGE

    @property
    def promise(self) -> bool:
        return self.predicted is not None and self.predicted[1] >= PROMISE

    @property
    def judged(self) -> bool:
        """Whether there is both a prediction and a verdict on the change."""
        return self.predicted is not None and (self.measured.better or self.measured.worse)

    @property
    def sign_right(self) -> bool:
        return self.predicted is not None and (self.predicted[1] > 0) == self.measured.better

    @property
    def error(self) -> float | None:
        """Signed error of the predicted saving, as a share of the measured saving. None without a real saving."""
        if self.predicted is None or not self.measured.better:
            return None
        return self.predicted[1] / self.measured.saving - 1

    @property
    def covered(self) -> bool:
        low, _, high = self.predicted or (0.0, 0.0, 0.0)
        return low <= self.measured.saving <= high

    @property
    def base_error(self) -> float:
        """Signed error of the step time from which predictions start, as a share of the measured step time."""
        return self.before.base.step_ns / (self.measured.base * 1e6) - 1

    @property
    def recorded_ratio(self) -> float:
        """The recorded step time, divided by the measured step time."""
        return self.before.base.recorded_ns / (self.measured.base * 1e6)


def scores(pairs: Iterable[Pair], folder: Path, say: Callable[[str], None]) -> list[Score]:
    """Return the scores of the pairs that were measured and recorded. The outcome of a pair does not adjust its own
    prediction."""
    from perfkit_core.advice.engine import advise

    known, result = truth.known(), []
    for pair in pairs:
        places = [truth.recording(pair, side, folder) for side in ("base", "change")]
        measured = known.get(pair.program)
        if measured is None or measured.hash != pair.hash or not all(place.exists() for place in places):
            say(f"{pair.program}: not measured")
            continue
        others = [one for one in shipped() if one.base != pair.program]
        before, after = (advise(place, outcomes=others) for place in places)
        result.append(Score(pair, measured, places[0], before, after))
    return result


def shipped() -> list[Record]:
    """Return the outcomes that perfkit ships."""
    return ledger.read(SHIPPED)


def record(one: Score) -> Record | None:
    """Return the outcome of a pair for the ledger; None if the rule of the pair gave no advice with a number."""
    advice, m, measured = one.recorded_advice, one.measured, one.truth
    if advice is None or advice.prediction.p50_ns is None:
        return None
    p = advice.prediction
    outcome: ledger.Outcome = "verified" if m.better else "refuted" if m.worse else "abstained"
    return Record(
        date=measured.date, outcome=outcome, base=one.pair.program, change=f"{one.pair.program} --fixed",
        base_hash=measured.hash, change_hash=measured.hash, cpu=measured.cpu, cpus=list(range(measured.cpus)),
        advice=advice.id, rule=advice.rule, rule_version=advice.version, framework=advice.framework,
        framework_version=measured.version, runtime=advice.runtime, metric=truth.METRIC.text, base_ns=p.base_ns,
        p10_ns=p.p10_ns, p50_ns=p.p50_ns, p90_ns=p.p90_ns, saving_p10_ns=p.saving_p10_ns,
        saving_p90_ns=p.saving_p90_ns, replayed_saving_ratio=p.replayed_ratio, base_median=m.base,
        change_median=m.change, runs=m.base_runs + m.change_runs, saving_ratio=m.saving, saving_low_ratio=m.saving_low,
        saving_high_ratio=m.saving_high, noise_ratio=m.noise,
        saving_error=(1 - p.p50_ns / p.base_ns) / m.saving - 1 if m.better else None,
        step_error=p.p50_ns / p.base_ns / (1 - m.saving) - 1,
    )  # fmt: skip


def table(found: Sequence[Score]) -> list[tuple[str, str, str]]:
    """Return the rows of the summary: what, measured, wanted."""
    large = [one for one in found if one.large]
    told = [one for one in large if one.promise]
    judged, covered = [one for one in found if one.judged], [one for one in found if one.predicted is not None]
    refuted = [one for one in found if one.promise and one.measured.worse]
    noise = [one for one in found if one.promise and not one.measured.worse and not one.measured.better]
    gaps = [one for one in found if _share(one.after, "host-gap") >= PROMISE]
    again = [one for one in found if _share(one.after, one.pair.rule) >= PROMISE]
    errors = [one.error for one in found if one.error is not None]
    bases = [one.base_error for one in found]
    off = [one for one in found if abs(one.base_error) > BASE_ERROR]
    own = [one.before.base.error for one in found if one.before.base.error is not None]
    ratios = [one.recorded_ratio for one in found]
    return [
        ("fixes that save more than 10% and have a predicted saving of ≥ 3%", _of(told, large), "≥ 14 of 16"),
        ("predicted savings of ≥ 3% whose fix makes the program slower", _of(refuted, found), "0"),
        ("predicted savings of ≥ 3% whose fix saves nothing measurable", _of(noise, found), "≤ 1"),
        ("fixed programs with a predicted saving of ≥ 3% from host-gap", _of(gaps, found), "≤ 2"),
        ("fixed programs with a predicted saving of ≥ 3% from the rule of the fix", _of(again, found), ""),
        ("predicted and measured saving have the same sign, of clear measurements",
         _of([one for one in judged if one.sign_right], judged), "≥ 19 of 20"),
        ("error of the predicted saving: median size (range)", _signed(errors), "≤ 15%"),
        ("measured saving inside p10–p90", _of([one for one in covered if one.covered], covered), "75–85%"),
        ("recorded step ÷ measured step: median (largest)",
         f"{statistics.median(ratios):.2f} ({max(ratios):.2f})", ""),
        ("base error: median size", f"{statistics.median(map(abs, bases)):.1%}", "≤ 5%"),
        ("base error: largest size", f"{max(map(abs, bases)):.1%}", "≤ 12%"),
        ("base errors above 12%", _of(off, found), "0"),
        ("base error in the recorded process: median size", f"{statistics.median(own):.1%}", "≤ 5%"),
        ("base error in the recorded process: largest size", f"{max(own):.1%}", "≤ 12%"),
    ]  # fmt: skip


def line(one: Score) -> tuple[str, ...]:
    """Return the row of a pair: program, measured saving, predicted saving, advice, base error, recorded ratio."""
    m = one.measured
    verdict = "better" if m.better else "worse" if m.worse else "noise"
    said = "–" if one.advice is None else "no number"
    if one.predicted is not None:
        low, mid, high = one.predicted
        said = f"{mid:.0%} ({low:.0%} to {high:.0%})"
    return (
        one.pair.program, f"{m.saving:.0%} ({m.saving_low:.0%} to {m.saving_high:.0%})", verdict, one.pair.rule, said,
        f"{one.base_error:+.0%}", f"{one.recorded_ratio:.2f}", f"{m.noise:.0%}",
    )  # fmt: skip


def _share(advices: Advices, rule: str) -> float:
    return max((one.prediction.saving_ratio or 0.0 for one in advices.advice if one.rule == rule), default=0.0)


def _of(part: Sequence[object], whole: Sequence[object]) -> str:
    return f"{len(part)} of {len(whole)}"


def _signed(errors: Sequence[float]) -> str:
    if not errors:
        return "–"
    return f"{statistics.median(map(abs, errors)):.0%} ({min(errors):+.0%} to {max(errors):+.0%})"
