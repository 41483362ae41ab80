"""Remedies of both frameworks: every rule has code or says why not, and the code uses names that the framework has."""

from __future__ import annotations

import pytest
from packaging.version import Version

from perfkit_core.advice.remedies import read_remedies
from perfkit_core.plugins.contracts import Remedy
from tests.support.frameworks import FRAMEWORKS, Framework
from tests.support.remedy_code import filled, ident, names, unknown_arguments

REMEDIES = {framework: read_remedies(f"perfkit_{framework}") for framework in FRAMEWORKS}
CODED = [
    pytest.param(framework, remedy, id=f"{framework}-{ident(remedy)}")
    for framework, remedies in REMEDIES.items()
    for remedy in remedies
    if remedy.code
]
NO_CODE = {
    "decode-gap", "small-decode-batch", "waiting-operator", "outlier-steps", "outlier-steps-once",
    "outlier-steps-outside", "host-gap", "host-gap-unknown", "host-code", "host-code-loader",
    "exposed-communication-one", "exposed-communication-slow", "exposed-copies", "exposed-copies-DtoH",
    "exposed-copies-HtoD", "decode-without-graph", "layout-transposes", "rank-skew", "rank-skew-unread",
    "recomputed-forward", "recomputed-forward-yes", "work-between-steps", "unbatched-loop", "memory-near-limit-no",
    "slow-kernels", "slow-kernels-operator",
}  # fmt: skip
MORE = {
    "torch": {"elementwise-chain-vllm", "elementwise-chain-yes", "exposed-communication-slow-npu", "launch-bound-vllm",
              "launch-bound-yes", "memory-near-limit-vllm", "slow-kernels-cuda",
              "tensor-cores-unused-yes-float16"},
    "paddle": {"per-tensor-optimizer", "unbatched-loop-updates"},
}  # fmt: skip


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rule_without_code_says_why(framework: str) -> None:
    without = [remedy for remedy in REMEDIES[framework] if not remedy.code]
    assert {ident(remedy) for remedy in without} == NO_CODE | MORE[framework]
    assert all(remedy.note for remedy in without)


@pytest.mark.parametrize(("framework", "remedy"), CODED, indirect=["framework"])
def test_the_code_uses_names_that_the_framework_has(native: Framework, remedy: Remedy) -> None:
    code = filled(remedy)
    compile(code, remedy.rule, "exec")
    list(names(code, native.name))  # raises an error if the framework lacks the name
    assert unknown_arguments(code, native.name) == []
    if native.name == "torch":
        assert not remedy.since or Version("1.0") <= Version(remedy.since) <= Version(native.module.__version__)
