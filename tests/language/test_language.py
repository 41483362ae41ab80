"""Every text is in the catalogues, translated; what was kept in English is retold; pages are read in one language."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po

from perfkit_core.advice.advise import advise
from perfkit_core.advice.page import report as advice_page
from perfkit_core.analyses.fluid import fluid_overhead
from perfkit_core.cli.main import main
from perfkit_core.comparison.report import comparison_report
from perfkit_core.language import LANGUAGES, in_english, language, retold, say, speaking
from perfkit_core.language.__main__ import HERE, TEMPLATE
from perfkit_core.language.catalogue import Catalogue, read
from perfkit_core.language.columns import SIDES, worded
from perfkit_core.language.extract import messages
from perfkit_core.loading import load
from perfkit_core.renderers.html import render as as_page
from perfkit_core.renderers.markdown import render as as_markdown
from perfkit_core.renderers.text import render as as_text
from perfkit_core.report.model import Report, Source
from perfkit_core.report.page import run_report
from perfkit_core.report.summary import summarize
from perfkit_core.table_columns import CATEGORY, NAME, key
from perfkit_core.trace import Finding, Trace
from tests.support.page_words import english, texts
from tests.support.paths import ROOT

PACKAGES = ("perfkit_core", "perfkit_torch", "perfkit_paddle")
DATA = ROOT / "tests" / "data"
TORCH, PADDLE = DATA / "torch-mlp.json.gz", DATA / "paddle-mlp.json.gz"
WORD = re.compile(r"\{(\w+)[^{}]*\}")
OTHERS = LANGUAGES[1:]


def catalogue(path: Path) -> Catalog:
    return read_po(BytesIO(path.read_bytes()), charset="utf-8")


def translated(name: str) -> list[Message]:
    return [one for one in catalogue(HERE / f"{name}.po") if one.id]


@cache
def trace(path: Path) -> Trace:
    return load(path)


def of_run(path: Path) -> Report:
    return run_report(trace(path))


def of_advice(path: Path) -> Report:
    return advice_page(advise(trace(path)), trace(path), [])


def places(one: Catalog) -> dict[str, list[str]]:
    return {str(message.id): sorted(path for path, _ in message.locations) for message in one if message.id}


def test_the_catalogues_hold_what_the_code_says() -> None:
    """Where this fails: ``python -m perfkit_core.language``, then translate what is new."""
    expected = places(messages())
    assert places(catalogue(TEMPLATE)) == expected
    for name in OTHERS:
        assert places(catalogue(HERE / f"{name}.po")) == expected


def test_texts_are_written_so_that_they_are_found() -> None:
    """A text that is put together before it is said is in no catalogue: words are given to ``say``."""
    made = [
        f"{file.name}:{call.lineno}"
        for package in PACKAGES
        for file in sorted(ROOT.joinpath(package).rglob("*.py"))
        if "perfkit_core.language" in file.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("say", "in_english")
        if isinstance(call.args[0], (ast.JoinedStr, ast.BinOp))
    ]
    assert made == []
    scripts = "".join(file.read_text(encoding="utf-8") for file in ROOT.joinpath("perfkit_core").rglob("*.js"))
    assert re.findall(r"page\.say\((?!\")[^)]*", scripts) == []


@pytest.mark.parametrize("name", OTHERS)
def test_every_text_is_translated(name: str) -> None:
    assert [one.id for one in translated(name) if not one.string or one.fuzzy] == []
    assert not catalogue(HERE / f"{name}.po").obsolete


@pytest.mark.parametrize("name", OTHERS)
def test_translations_have_the_words_of_the_text(name: str) -> None:
    """Each word that is filled in is said. English verb forms, called ``verb``, may be left out."""
    for one in translated(name):
        wanted, found = set(WORD.findall(str(one.id))), set(WORD.findall(str(one.string)))
        assert found <= wanted, one.id
        assert {word for word in wanted - found if not word.startswith("verb")} == set(), one.id


@pytest.mark.parametrize("name", OTHERS)
def test_translations_keep_commands_options_and_calls(name: str) -> None:
    """What is to be typed is in no language."""
    typed = re.compile(
        r"(?<![\w-])--[a-z][a-z-]+|\b[\w.]+\w\(\)|\b\w+=(?:True|False)\b|perfkit (?:summary|report|advise)\b"
    )
    for one in translated(name):
        assert set(typed.findall(str(one.id))) == set(typed.findall(str(one.string))), one.id


def test_a_text_is_said_in_the_language_of_the_moment() -> None:
    assert say("{count} steps", count=2) == "2 steps"
    with speaking("zh"):
        assert (language(), say("{count} steps", count=2)) == ("zh", "2 步")
        with speaking("en"):
            assert (language(), say("{count} steps", count=2)) == ("en", "2 steps")
        assert language() == "zh"
    assert language() == "en"


def test_the_language_before_is_spoken_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), speaking("zh"):
        _ = 1 // 0
    assert (language(), say("Copies")) == ("en", "Copies")


def test_a_text_without_translation_is_said_in_english() -> None:
    with speaking("zh"):
        assert say("nobody translated {this}", this="7 of it") == "nobody translated 7 of it"
        assert retold("nobody translated that") == "nobody translated that"


def test_words_that_are_filled_in_mean_nothing() -> None:
    name = "{count} <b>%s</b> \\1 {0}"
    with speaking("zh"):
        assert say("Architecture of {name}", name=name) == f"{name} 的架构"
        assert retold(in_english("the file does not describe {devices}", devices=name)) == f"文件没有描述 {name}"


def test_what_was_kept_in_english_is_retold() -> None:
    kept = in_english("{count} damaged events could not be read and are missing", count=7)
    assert (retold(kept), kept) == (kept, "7 damaged events could not be read and are missing")
    with speaking("zh"):
        assert in_english("{count} damaged events could not be read and are missing", count=7) == kept
        assert retold(kept) == "7 个损坏的事件无法读取，已缺失"
        assert retold(f"{kept} (ranks 0–3, 5)") == "7 个损坏的事件无法读取，已缺失（rank 0–3, 5）"
        assert retold(f"{kept} (rank 2; alike in 3 more of 8 ranks)").startswith(
            "7 个损坏的事件无法读取，已缺失（rank 2"
        )


def test_the_most_specific_template_is_retold() -> None:
    texts_ = {"{a} is {b}": "{b}<{a}", "{a} is {b} of {c}": "{c}|{b}|{a}", "{a} and {a}": "{a}+{a}"}
    known = Catalogue(texts_, {"kept": tuple(texts_)})
    assert known.retold("x is y of z") == "z|y|x"
    assert known.retold("x is y") == "y<x"
    assert (known.retold("x and x"), known.retold("x and y")) == ("x+x", "x and y")


def test_only_what_is_kept_is_recognised() -> None:
    """A name in a recording that reads like a text of the page stays a name."""
    known = Catalogue({"{count} rows": "{count} 行"}, {"table.py": ("{count} rows",)})
    assert known.retold("5 rows") == "5 rows"


@pytest.mark.parametrize("path", [TORCH, PADDLE], ids=["torch", "paddle"])
@pytest.mark.parametrize("make", [of_run, of_advice])
def test_a_page_is_in_chinese(make: Callable[[Path], Report], path: Path) -> None:
    with speaking("zh"):
        page = as_page(make(path))
    assert '<html lang="zh">' in page
    assert len(texts(page)) > 20
    assert english(page) == []


def test_a_comparison_is_in_chinese() -> None:
    with speaking("zh"):
        page = as_page(comparison_report(trace(TORCH), trace(PADDLE)))
    assert english(page) == []


def test_an_english_page_has_no_chinese() -> None:
    """What the test of Chinese pages looks for is there in English ones, and nothing of the other language is."""
    page = as_page(of_run(TORCH))
    assert '<html lang="en">' in page
    assert len(english(page)) > 20
    assert not re.search(r"[\u4e00-\u9fff]", page.partition('id="library-')[0])


@pytest.mark.parametrize("render", [as_page, as_text, as_markdown])
def test_findings_are_retold_in_every_format(render: Callable[[Report], str]) -> None:
    text = in_english("{count} events were not valid JSON, or nested too deep, and are missing", count=3)
    finding = Finding("skipped-events", text)
    report = Report("r", (Source("r", "r", (finding,)),), ())
    assert "3 events were not valid JSON, or nested too deep, and are missing" in render(report)
    with speaking("zh"):
        assert "3 个事件不是有效的 JSON 或嵌套过深，已缺失" in render(report)


def test_tables_are_the_same_in_every_language() -> None:
    """Names, columns and numbers are data."""
    table = summarize(trace(TORCH), "operators")
    with speaking("zh"):
        assert summarize(trace(TORCH), "operators").equals(table)


def test_words_of_ours_are_said_and_names_are_not() -> None:
    named_by_us = next(column for column in fluid_overhead.COLUMNS if column.name == "name")
    with speaking("zh"):
        assert (worded("compute", CATEGORY), worded("(no module)", NAME)) == ("计算", "（无模块）")
        assert worded("framework overhead", named_by_us) != "framework overhead" == worded("framework overhead", NAME)
        assert (worded("base", key("run", "Run", words=SIDES)), worded("base", NAME)) == ("基准", "base")
        assert [worded(name, NAME) for name in ("copy", "compute", "(anonymous namespace)", "Copy")] == [
            "copy", "compute", "(anonymous namespace)", "Copy",
        ]  # fmt: skip


def test_a_gpu_training_is_in_chinese(traces: Path) -> None:
    """Kernels, stacks and advice on a device; nothing in it is called like an English sentence."""
    found = load(traces / "torch" / "h100-bert-small.json.gz")
    with speaking("zh"):
        assert english(as_page(run_report(found))) == []
        assert english(as_page(advice_page(advise(found), found, []))) == []


def test_advice_is_called_the_same_in_every_language() -> None:
    named = [one.id for one in advise(trace(TORCH)).advice]
    with speaking("zh"):
        assert [one.id for one in advise(trace(TORCH)).advice] == named


def test_the_command_line_speaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By option and by environment, and only as long as the command runs."""
    command = ["summary", str(TORCH), "--view", "steps"]
    assert (main([*command, "--lang", "zh"]), language()) == (0, "en")
    chinese = capsys.readouterr().out
    assert "每一步的时长" in chinese
    monkeypatch.setenv("PERFKIT_LANG", "zh")
    assert (main(command), capsys.readouterr().out) == (0, chinese)
    assert main([*command, "--lang", "en"]) == 0
    assert "Duration of each step" in capsys.readouterr().out


def test_an_unknown_language_is_refused() -> None:
    assert LANGUAGES[:1] == ("en",)
    assert "zh" in LANGUAGES
    with pytest.raises(FileNotFoundError):
        read("xx")
