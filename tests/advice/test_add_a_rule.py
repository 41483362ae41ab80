"""The rule and the remedy of docs/add-a-rule.md: what a removed sort saves, its code, and recordings without sorts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from docs import blocks
from perfkit_core.advice.engine import advise
from perfkit_core.base.language.messages import english
from perfkit_core.plugins.manager import EntryPoint, Plugins
from perfkit_core.plugins.manager import load as load_plugins
from perfkit_core.trace.model.trace import Trace
from tests.support.device_steps import Op, training
from tests.support.events import host, trace
from tests.support.paths import ROOT

RULE = "sort-each-step"


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugins]:
    """Write the package of the page, and load it."""
    folder = tmp_path_factory.mktemp("plugin")
    package = folder / "perfkit_sorting"
    package.mkdir()
    page = list(blocks.blocks(ROOT / "docs" / "add-a-rule.md"))
    (code,) = (block.text for block in page if block.language == "python")
    remedy, entry_point = (block.text for block in page if block.language == "toml")
    (package / "__init__.py").write_text("")
    (package / "plugin.py").write_text(code, encoding="utf-8")
    (package / "remedies.toml").write_text(remedy, encoding="utf-8")
    assert 'sorting = "perfkit_sorting.plugin"' in entry_point
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield load_plugins([EntryPoint("sorting", "perfkit_sorting.plugin")])


def steps(*operators: Op) -> Trace:
    recorded = training(
        Op("aten::mm", [("gemm", 200)]), *operators, steps=3, names=lambda name: name.partition("::")[2]
    )
    return recorded.with_meta(framework="torch")


def test_a_removed_sort_saves_its_kernels(plugins: Plugins) -> None:
    recorded = steps(Op("aten::sort", [("radix_sort", 30), ("gather", 20)]))
    (advice,) = advise(recorded, rules=[RULE], plugins=plugins).advice
    assert advice.prediction.saving_ns == 50_000
    assert english(advice.candidate.what).startswith("1 sort per step takes 50.0 µs of the")
    assert advice.remedy is not None
    assert advice.remedy.api == "torch.topk"
    assert "instead of aten::sort(scores" in advice.remedy.code


def test_without_sorts_there_is_no_advice(plugins: Plugins) -> None:
    found = advise(steps(), rules=[RULE], plugins=plugins)
    assert not found.advice
    assert not found.not_evaluable


def test_without_steps_the_rule_says_what_is_missing(plugins: Plugins) -> None:
    found = advise(trace([host("aten::sort", "operator", 0, 100)]), rules=[RULE], plugins=plugins)
    assert "no steps were recorded" in english(found.not_evaluable[RULE].text)
