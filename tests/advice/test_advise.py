"""Advice in general: rules that fail, order, severity, excluded advice, and savings that are replayed together. The
times in the traces are chosen so that results can be added by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from perfkit_core.advice.advice import Advices, Prediction
from perfkit_core.advice.engine import advise, ids, what_ifs
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.advice.text import how_sure, saves
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.errors import UsageError
from perfkit_core.measure.verify.prediction import one_of
from perfkit_core.plugins.contracts import Remedy, Rule
from perfkit_core.plugins.frameworks import Framework
from perfkit_core.readers.load import load
from perfkit_core.replay.graph import CHAIN, Graph, Replay, all_edges, edges
from perfkit_core.replay.transforms import Case, Quantity, Remove, Scale, Transform
from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace

Found = Callable[[RuleInput], Sequence[Candidate]]


def said(reasons: Mapping[str, object]) -> dict[str, str]:
    return {name: str(reason) for name, reason in reasons.items()}


@dataclass
class Made:
    """Plugins that provide only these rules and remedies."""

    made: list[Rule]
    known: Sequence[Remedy] = ()

    def rules(self) -> dict[str, Rule]:
        return {rule.id: rule for rule in self.made}

    def framework(self, name: str | None) -> Framework:
        return Framework(name or "", remedies=lambda: self.known)


def rows(trace: Trace, *names: str) -> IntArray:
    return np.flatnonzero(trace.rows("name", *names)).astype(np.int64)


def rule(name: str, find: Found, number: int = 1) -> Rule:
    return Rule(name, number, 1, f"Title of {name}", find)


def removing(name: str, **more: object) -> Found:
    """Return a function that finds the events with a name and removes them."""
    return lambda facts: [Candidate(name, {}, (at := rows(facts.trace, name)), transforms=(Remove(at),), **more)]


def launching() -> Trace:
    """Return a trace with two launches of 10 µs, consecutive kernels of 100 and 50 µs, and a synchronisation that waits
    for both."""
    return trace(
        [
            host("step", "step", 0, 170_000, step=0),
            host("launch a", "runtime", 0, 10_000, correlation=1),
            device("a", "kernel", 5_000, 100_000, 1),
            host("launch b", "runtime", 10_000, 10_000, correlation=2),
            device("b", "kernel", 106_000, 50_000, 2),
            host("cudaDeviceSynchronize", "sync", 20_000, 140_000),
        ]
    )


def working(*parts: int, steps: int = 1) -> Trace:
    """Return steps of 100 µs. The operators op0, op1, … take the given times in turn, and Python takes the rest."""
    found = []
    for step in range(steps):
        at = step * 100_000
        found.append(host(f"step {step}", "step", at, 100_000, step=step))
        for number, part in enumerate(parts):
            found.append(host(f"op{number}", "operator", at, part))
            at += part
    return trace(found)


def savings(found: Advices) -> dict[str, int | None]:
    return {one.rule: one.prediction.saving_ns for one in found.advice}


def test_the_largest_saving_is_first_and_sets_the_severity() -> None:
    made = Made([rule(f"op{n}", removing(f"op{n}"), n) for n in range(4)])
    found = advise(working(2_900, 3_000, 10_000, 9_900), plugins=made)
    assert list(savings(found).items()) == [("op2", 10_000), ("op3", 9_900), ("op1", 3_000), ("op0", 2_900)]
    assert [one.severity for one in found.advice] == ["high", "medium", "medium", "low"]
    assert found.combined.saving_ns == 10_000 + 9_900 + 3_000 + 2_900
    assert found.combined.p50_ns == 100_000 - 25_800


def test_a_saving_below_the_noise_is_not_of_high_severity() -> None:
    """Of two steps, one takes 30 µs longer, in which nothing was recorded."""
    made = Made([rule("op0", removing("op0"), 0)])
    quiet = working(12_000, steps=2)
    noisy = trace(
        [
            host("step 0", "step", 0, 100_000, step=0),
            host("op0", "operator", 0, 12_000),
            host("step 1", "step", 100_000, 130_000, step=1),
            host("op0", "operator", 100_000, 12_000),
        ]
    )
    assert [advise(one, plugins=made).advice[0].severity for one in (quiet, noisy)] == ["high", "medium"]


def test_what_two_changes_both_save_counts_once() -> None:
    def faster(facts: RuleInput) -> list[Candidate]:
        return [Candidate("halve a", {}, rows(facts.trace, "a"), transforms=(Scale(rows(facts.trace, "a"), 0.5),))]

    made = Made([rule("launch", removing("launch a"), 1), rule("kernel", faster, 2)])
    found = advise(launching(), plugins=made)
    # without a: b runs from 5 to 55, the wait returns 4 later, and 10 follow, so the step takes 69 µs instead of 170
    assert savings(found) == {"launch": 101_000, "kernel": 50_000}
    assert found.combined.saving_ns == 101_000
    assert found.together == tuple(one.id for one in found.advice)


def test_of_two_exclusive_changes_the_larger_saving_is_kept() -> None:
    made = Made([rule("small", removing("op0", conflicts=("large",)), 1), rule("large", removing("op1"), 2)])
    found = advise(working(10_000, 20_000), plugins=made)
    large, small = found.advice
    assert found.combined.saving_ns == 20_000
    assert (found.together, said(found.excluded)) == ((large.id,), {small.id: f"replaced by {large.id}"})


def test_a_failing_rule_does_not_affect_other_rules() -> None:
    def broken(facts: RuleInput) -> list[Candidate]:
        raise ValueError("no such\ncolumn")

    def blind(facts: RuleInput) -> list[Candidate]:
        raise NotEvaluableError("no stacks were recorded")

    def beyond(facts: RuleInput) -> list[Candidate]:
        return [Candidate("rows that are not there", {}, np.array([10**6]))]

    made = Made([rule("broken", broken), rule("blind", blind), rule("beyond", beyond), rule("op0", removing("op0"))])
    found = advise(working(10_000), plugins=made)
    assert savings(found) == {"op0": 10_000}
    assert str(found.not_evaluable["broken"]) == "the rule failed (ValueError: no such column)"
    assert str(found.not_evaluable["blind"]) == "no stacks were recorded"
    assert str(found.not_evaluable["beyond"]).startswith("the rule failed (IndexError: ")


def test_a_change_that_saves_nothing_is_no_advice() -> None:
    def slower(facts: RuleInput) -> list[Candidate]:
        return [Candidate("twice op0", {}, rows(facts.trace, "op0"), transforms=(Scale(rows(facts.trace, "op0"), 2),))]

    made = Made([rule("slower", slower), rule("little", removing("op1")), rule("enough", removing("op2"))])
    found = advise(working(10_000, 100, 101), plugins=made)  # the threshold, a thousandth of the step, is 100 ns
    assert savings(found) == {"enough": 101}
    assert {one.rule: one.prediction.saving_ns for one in found.without_saving} == {"slower": -10_000, "little": 100}


def test_a_saving_below_the_noise_is_marked() -> None:
    steps = [host(f"step {n}", "step", n * 1_000_000, 100_000 + 10_000 * n, step=n) for n in range(5)]
    work = [host("op0", "operator", n * 1_000_000, 30_000) for n in range(5)]
    work += [host("op1", "operator", n * 1_000_000 + 50_000, 1_000) for n in range(5)]
    found = advise(trace(steps + work), plugins=Made([rule("op0", removing("op0")), rule("op1", removing("op1"))]))
    assert savings(found) == {"op0": 30_000, "op1": 1_000}
    assert 5_000 <= found.noise_ns <= 20_000  # from medians of resampled steps of 100 to 140 µs
    large, small = (" ".join(map(str, how_sure(one, found))) for one in found.advice)
    assert "by chance" not in large
    assert "smaller than the noise of the steps" in small


@pytest.mark.parametrize(
    ("saving", "least", "said"),
    [
        (15, 5, "saves 15% of the time"),
        (15, None, "saves 15% of the time"),
        (15, -5, "may save 15% of the time"),
        (-15, -30, "costs 15% more time"),
        (0, -5, "saves nothing"),
        (None, None, ""),
    ],
)
def test_a_saving_that_may_be_a_loss_is_not_promised(saving: int | None, least: int | None, said: str) -> None:
    sentence = saves(Prediction("replay", 100, saving_ns=saving, saving_p10_ns=least))
    assert ("" if sentence is None else str(sentence)) == said


def test_an_advice_without_a_prediction_is_a_note_at_the_end() -> None:
    def told(facts: RuleInput) -> list[Candidate]:
        return [Candidate("just so", {}, method="none", ceiling_ns=5_000)]

    found = advise(working(10_000), plugins=Made([rule("told", told, 1), rule("op0", removing("op0"), 2)]))
    assert [(one.rule, one.severity) for one in found.advice] == [("op0", "high"), ("told", "note")]
    prediction = found.advice[1].prediction
    assert (prediction.p50_ns, prediction.saving_ns, prediction.ceiling_ns) == (None, None, 5_000)
    assert found.together == (found.advice[0].id,)


def test_a_prediction_without_a_replay_is_not_combined() -> None:
    after = Quantity(80_000, 85_000, 95_000, "measured on such a device")

    def told(facts: RuleInput) -> list[Candidate]:
        return [Candidate("tensor cores", {}, method="microbenchmark", after_ns=after)]

    found = advise(working(10_000), plugins=Made([rule("told", told), rule("op0", removing("op0"))]))
    assert savings(found) == {"told": 15_000, "op0": 10_000}
    told_id = found.advice[0].id
    assert found.combined.saving_ns == 10_000
    assert said(found.excluded) == {told_id: "its saving is not from a replay (microbenchmark)"}
    prediction = found.advice[0].prediction
    # with a single step, ±5 % are assumed
    assert (prediction.p10_ns, prediction.p50_ns, prediction.p90_ns) == (76_000, 85_000, 99_750)


@dataclass(frozen=True)
class Behind:
    """A transform that makes the first event of a name wait for the first event of another name."""

    first: str
    second: str

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        before, after = (replay.first[rows(replay.trace, name)[:1]] for name in (self.first, self.second))
        return replace(graph, edges=all_edges([graph.edges, edges(CHAIN, before, after)]))


def test_changes_that_cannot_be_combined() -> None:
    """op0 and op1 run on two threads. Each of them can wait for the other, but not both."""
    found = trace(
        [
            host("op1", "operator", 0, 1_000, tid=2),
            host("step", "step", 10_000, 100_000, step=0),
            host("op0", "operator", 10_000, 90_000),
        ]
    )

    def waiting(first: str, second: str) -> Found:
        return lambda facts: [Candidate(f"{second} after {first}", {}, transforms=(Behind(first, second), saved))]

    saved = Scale(rows(found, "op0"), 0.5)

    def circle(facts: RuleInput) -> list[Candidate]:
        return [Candidate("both", {}, transforms=(Behind("op0", "op1"), Behind("op1", "op0")))]

    forth, back = waiting("op0", "op1"), waiting("op1", "op0")
    result = advise(found, plugins=Made([rule("forth", forth), rule("back", back), rule("circle", circle)]))
    assert "wait for each other" in str(result.not_evaluable["circle"])
    first, second = result.advice
    assert savings(result) == {"back": 45_000, "forth": 45_000}
    assert result.combined.saving_ns == 45_000
    assert result.together == (first.id,)
    assert said(result.excluded) == {second.id: "it cannot be replayed together with the others"}


@dataclass(frozen=True)
class Once:
    """The first of these transforms removes an operator; each further transform adds ``more_ns``."""

    name: str
    more_ns: int

    def apply(self, replay: Replay, graph: Graph, case: Case) -> Graph:
        dur, first = graph.dur_ns.copy(), replay.first[rows(replay.trace, self.name)[:1]]
        dur[first] = np.where(dur[first] == replay.graph.dur_ns[first], 0, dur[first] + self.more_ns)
        return replace(graph, dur_ns=dur)


def test_a_change_that_costs_time_when_combined_is_left_out() -> None:
    """op0 takes 40 µs and op1 takes 30 µs. Two changes remove op0. If op0 is already removed, the second change adds 10
    µs."""
    finds: dict[str, Transform] = {"all": Once("op0", 0), "part": Once("op0", 10_000)}
    rules = [
        rule(name, lambda facts, transform=transform: [Candidate("", {}, transforms=(transform,))])
        for name, transform in finds.items()
    ]
    result = advise(working(40_000, 30_000), plugins=Made([*rules, rule("op1", removing("op1"))]))
    assert savings(result) == {"all": 40_000, "part": 40_000, "op1": 30_000}
    ids = {one.rule: one.id for one in result.advice}
    assert result.together == (ids["all"], ids["op1"])
    assert result.combined.saving_ns == 70_000
    assert said(result.excluded) == {ids["part"]: "combined with the others, it would cost 10.0 µs"}


def test_an_id_does_not_depend_on_the_steps() -> None:
    """The id of an advice stays the same if other steps are late in the next recording."""

    def ids_of(*names: str) -> list[str]:
        parts = [
            (host(name, "step", n * 100, 100, step=n), host("op", "operator", n * 100, 9))
            for n, name in enumerate(names)
        ]
        found = trace([row for part in parts for row in part])
        late = Candidate("late", {}, rows(found, names[0]), method="none")
        return ids(found, "outlier-steps", [late, replace(late, fill={"outliers": "clock"})])

    first, other = ids_of("ProfilerStep#3"), ids_of("ProfilerStep#8", "ProfilerStep#9")
    assert first == other
    assert len(set(first)) == 2


def test_only_the_selected_rules_run() -> None:
    made = Made([rule("op0", removing("op0")), rule("op1", removing("op1"))])
    assert set(savings(advise(working(10_000, 10_000), rules=["op1"], plugins=made))) == {"op1"}
    with pytest.raises(UsageError, match=r"unknown rule 'op2'.*known: op0, op1"):
        advise(working(10_000), rules=["op2"], plugins=made)
    with pytest.raises(UsageError, match="unknown threshold: loader_shar"):
        advise(working(10_000), thresholds={"loader_shar": 1}, plugins=made)


def test_thresholds_can_be_set() -> None:
    made = Made([rule("op0", removing("op0"))])
    (one,) = advise(working(4_000), thresholds={"severity_high": 0.04}, plugins=made).advice
    assert one.severity == "high"
    assert not advise(working(4_000), thresholds={"least_saving": 0.05}, plugins=made).advice


def test_what_if_works_even_if_the_rule_does_not_fire() -> None:
    def halved(facts: RuleInput, value: float) -> Candidate:
        if value <= 0:
            raise NotEvaluableError("nothing is that fast")
        at = rows(facts.trace, "op0")
        return Candidate(f"op0 ÷ {value}", {}, at, transforms=(Scale(at, 1 / value),))

    made = Made([Rule("op0", 1, 1, "Divide", lambda facts: [], halved), rule("mute", lambda facts: [])])
    assert not advise(working(10_000), plugins=made).advice
    (one,) = what_ifs(working(10_000), [("op0", 4)], plugins=made).advice
    assert one.prediction.saving_ns == 7_500
    (slower,) = what_ifs(working(10_000), [("op0", 0.5)], plugins=made).advice
    assert slower.prediction.saving_ns == -10_000
    answer = what_ifs(working(10_000), [("op0", 0)], plugins=made)
    assert said(answer.not_evaluable) == {"op0": "nothing is that fast"}
    with pytest.raises(UsageError, match="mute takes no --what-if value; these rules take a --what-if value: op0"):
        what_ifs(working(10_000), [("mute", 1)], plugins=made)


def test_an_id_identifies_the_advice() -> None:
    def twice(facts: RuleInput) -> list[Candidate]:
        return [*removing("op0")(facts), *removing("op0")(facts), *removing("op1")(facts)]

    def ids(found: Trace) -> list[str]:
        return [one.id for one in advise(found, plugins=Made([rule("op", twice)])).advice]

    first = ids(working(30_000, 10_000))
    assert first == ids(working(20_000, 10_000, steps=3))  # the times and the number of steps differ
    assert len(set(first)) == 3
    assert first[1] == f"{first[0]}-2"
    assert all(one.startswith("op-") for one in first)
    assert one_of(first[0], first) == first[0]
    assert one_of(first[2][:5], [first[0], "other-1", first[2]]) == first[2]
    with pytest.raises(UsageError, match="several ids begin with 'op-'"):
        one_of("op-", first)
    with pytest.raises(UsageError, match="no advice has the id 'x'; there is no advice"):
        one_of("x", [])


def test_steps_are_those_of_the_events() -> None:
    (one,) = advise(working(10_000, steps=3), plugins=Made([rule("op0", removing("op0"))])).advice
    assert one.steps == (0, 2)


def test_a_recording_without_a_host_has_no_steps_to_shorten() -> None:
    made = Made([rule("op0", removing("a"))])
    found = advise(trace([device("a", "kernel", 0, 10)]), plugins=made)
    assert not found.advice
    assert (found.identity.error, found.identity.steps) == (None, 0)
    assert "no host events" in str(found.not_evaluable["op0"])


def test_every_torch_file(torch_file: Path) -> None:
    check(torch_file)


def test_every_paddle_file(paddle_file: Path) -> None:
    check(paddle_file)


def check(path: Path) -> None:
    """Check that no rule fails, that each saving equals its prediction, and that all savings together do not exceed the
    step."""
    found = advise(load(path))
    assert not [why for why in found.not_evaluable.values() if "the rule failed" in str(why)]
    for one in (*found.advice, *found.without_saving):
        p = one.prediction
        if p.p50_ns is not None:
            assert p.saving_ns == p.base_ns - p.p50_ns
            assert 0 <= p.p10_ns <= p.p50_ns <= p.p90_ns
    shown = [one.prediction.saving_ns for one in found.advice if one.prediction.saving_ns is not None]
    assert shown == sorted(shown, reverse=True)
    assert all(saving > 0 for saving in shown)
    assert found.identity.error in (0.0, None)


def test_without_any_rule_an_error_is_raised() -> None:
    with pytest.raises(UsageError, match="no plugin provides a rule"):
        advise(working(10_000), plugins=Made([]))
