"""Every text is in the catalogues and translated, messages are translated when shown, and pages have one language."""

from __future__ import annotations

import ast
import pickle
import re
import sys
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path

import msgspec
import numpy as np
import pytest
from babel.messages.catalog import Catalog
from babel.messages.catalog import Message as Entry
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from perfkit_core.advice.engine import advise
from perfkit_core.advice.explain import document
from perfkit_core.api import summarize
from perfkit_core.base.language import messages
from perfkit_core.base.language.messages import (
    LANGUAGES,
    SIDES,
    Message,
    Sentence,
    language,
    message,
    plural,
    read,
    render,
    say,
    speaking,
    worded,
)
from perfkit_core.base.language.messages import english as untranslated
from perfkit_core.cli.main import main
from perfkit_core.compare.report import comparison_report
from perfkit_core.errors import UsageError
from perfkit_core.output.renderers.html.page import render as as_page
from perfkit_core.output.renderers.markdown import render as as_markdown
from perfkit_core.output.renderers.text import render as as_text
from perfkit_core.pages.advice import report as advice_page
from perfkit_core.pages.profile import run_report
from perfkit_core.readers.load import load
from perfkit_core.trace.model.columns import CATEGORY, NAME, key
from perfkit_core.trace.model.meta import Finding, StoredFinding
from perfkit_core.trace.model.report_data import Report, Source
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import fluid_overhead
from tests.support.page_words import english, texts
from tests.support.paths import ROOT
from tools import translations

PACKAGES = ("perfkit_core", "perfkit_torch", "perfkit_paddle")
DATA = ROOT / "tests" / "data"
TORCH, PADDLE = DATA / "torch-mlp.json.gz", DATA / "paddle-mlp.json.gz"
WORD = re.compile(r"\{(\w+[^{}]*)\}")
OTHERS = LANGUAGES[1:]


def catalogue(name: str) -> Catalog:
    return translations.read(translations.CATALOGUES / f"{name}.po")


def translated(name: str) -> list[Entry]:
    return [one for one in catalogue(name) if one.id]


@cache
def trace(path: Path) -> Trace:
    return load(path)


def of_run(path: Path) -> Report:
    return run_report(trace(path))


def of_advice(path: Path) -> Report:
    return advice_page(advise(trace(path)), trace(path), [])


@pytest.mark.parametrize("name", OTHERS)
def test_the_catalogues_have_the_texts_of_the_code(name: str) -> None:
    """If this test fails, run ``python tools/translations.py`` and translate the new texts."""
    expected = {str(one.id) for one in translations.messages() if one.id}
    assert {str(one.id) for one in translated(name)} == expected


def test_texts_are_written_so_that_they_can_be_extracted() -> None:
    """Code must pass values to ``say`` separately. A text that already contains its values is in no catalogue."""
    made = [
        f"{file.name}:{call.lineno}"
        for package in PACKAGES
        for file in sorted(ROOT.joinpath(package).rglob("*.py"))
        if "perfkit_core.base.language" in file.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("say", "message", "plural", "mark")
        if any(isinstance(text, (ast.JoinedStr, ast.BinOp)) for text in call.args[:2])
    ]
    assert made == []
    scripts = "".join(file.read_text(encoding="utf-8") for file in ROOT.joinpath("perfkit_core").rglob("*.js"))
    assert re.findall(r"page\.say\((?!\")[^)]*", scripts) == []


@pytest.mark.parametrize("name", OTHERS)
def test_every_text_is_translated(name: str) -> None:
    assert [one.id for one in translated(name) if not (one.string and all(one.string)) or one.fuzzy] == []
    assert not catalogue(name).obsolete


@pytest.mark.parametrize("name", OTHERS)
def test_translations_have_the_words_of_the_text(name: str) -> None:
    """Each placeholder occurs in the translation, with the same unit. The translation may leave out English verb forms
    (``verb``)."""
    for one in translated(name):
        wanted, found = set(WORD.findall(str(one.id))), set(WORD.findall(str(one.string)))
        assert found <= wanted, one.id
        assert {word for word in wanted - found if not word.startswith("verb")} == set(), one.id


@pytest.mark.parametrize("name", OTHERS)
def test_translations_keep_commands_options_and_calls(name: str) -> None:
    """Commands, options and calls are not translated."""
    typed = re.compile(
        r"(?<![\w-])--[a-z][a-z-]+|\b[\w.]+\w\(\)|\b\w+=(?:True|False)\b|perfkit (?:summary|report|advise)\b"
    )
    for one in translated(name):
        assert set(typed.findall(str(one.id))) == set(typed.findall(str(one.string))), one.id


def test_texts_use_the_current_language() -> None:
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
        assert render("nobody translated that") == "nobody translated that"
        assert str(plural("nobody has {n} copy", "nobody has {n} copies", 2)) == "nobody has 2 copies"


def test_words_that_are_filled_in_mean_nothing() -> None:
    name = "{count} <b>%s</b> \\1 {0}"
    with speaking("zh"):
        assert say("Architecture of {name}", name=name) == f"{name} 的架构"
        assert str(message("the file does not describe {devices}", devices=name)) == f"文件没有描述 {name}"


def test_a_message_is_a_sentence_only_when_it_is_shown() -> None:
    kept = message("{count} damaged events could not be read and are missing", count=7)
    assert str(kept) == "7 damaged events could not be read and are missing"
    with speaking("zh"):
        assert str(kept) == "7 个损坏的事件无法读取，已缺失"
        assert untranslated(kept) == "7 damaged events could not be read and are missing"
        whole = plural("{finding} (rank {numbers})", "{finding} (ranks {numbers})", 5, finding=kept, numbers="0–3, 5")
        assert str(whole) == "7 个损坏的事件无法读取，已缺失（rank 0–3, 5）"


def test_placeholders_are_formatted_by_their_unit() -> None:
    values = {"a": np.int64(12_345_678), "b": 3 * 2**20, "c": 0.1234, "d": 12, "e": ["x", message("y")]}
    made = message(
        "{a:ns} {b:bytes} {c:ratio} {d:count} {e:list} {f:and} {g} {h:.1f}",
        **values,
        f=("x", "y", "z"),
        g=12345.0,
        h=np.float32(0.25),
    )
    assert str(made) == "12.3 ms 3.00 MiB 12.3% 12 x, y x, y and z 12345.0 0.2"


def test_a_counted_message_has_two_forms() -> None:
    copies = [str(plural("{n} copy of {size:bytes}", "{n} copies of {size:bytes}", n, size=1024)) for n in (1, 2, 0)]
    assert copies == ["1 copy of 1.00 KiB", "2 copies of 1.00 KiB", "0 copies of 1.00 KiB"]


def test_messages_travel_and_are_compared() -> None:
    inner = plural("{n} copy", "{n} copies", 2)
    kept = message("{a} of {b:list}", a=inner, b=[1, "x", inner])
    for other in (pickle.loads(pickle.dumps(kept)), msgspec.json.decode(msgspec.json.encode(kept), type=Message)):
        assert (other, hash(other), str(other)) == (kept, hash(kept), str(kept))
    assert kept != message("{a} of {b:list}", a=inner, b=[1, "x"])


def test_braces_in_values_and_in_texts_without_values_stay() -> None:
    assert str(message("of {name}", name="{x} {0} %s")) == "of {x} {0} %s"
    assert str(message("a {x}")) == "a {x}"


def test_a_sentence_in_a_table_is_english_until_it_is_shown() -> None:
    cell = Sentence(message("{count} damaged events could not be read and are missing", count=7))
    assert cell == "7 damaged events could not be read and are missing"
    with speaking("zh"):
        assert cell == "7 damaged events could not be read and are missing"
        assert worded(pickle.loads(pickle.dumps(cell))) == "7 个损坏的事件无法读取，已缺失"


def test_stored_findings_are_translated_and_those_of_old_files_are_english(tmp_path: Path) -> None:
    finding = Finding("skipped", message("{count} damaged events could not be read and are missing", count=7))
    stored = StoredFinding.of(finding)
    kept = msgspec.json.encode(stored)
    assert msgspec.json.decode(kept)["message"] == "7 damaged events could not be read and are missing"
    again = msgspec.json.decode(kept, type=StoredFinding).finding()
    old = msgspec.json.decode(b'{"code": "skipped", "message": "7 were lost"}', type=StoredFinding).finding()
    assert msgspec.json.decode(b'{"code": "no-phases", "message": "no"}', type=StoredFinding).finding().note
    assert not old.note
    with speaking("zh"):
        assert (again, again.message) == (finding, "7 个损坏的事件无法读取，已缺失")
        assert old.message == "7 were lost"


def test_catalogues_are_read_without_babel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel contains only compiled catalogues. A catalogue that is not compiled and cannot be compiled is an
    error."""
    monkeypatch.setattr(messages, "_FOLDER", tmp_path)
    (tmp_path / "xx.po").write_text('msgid "Copies"\nmsgstr "Kopien"\n', encoding="utf-8")
    compiled = BytesIO()
    with (tmp_path / "xx.po").open("rb") as file:
        write_mo(compiled, read_po(file, charset="utf-8"))
    monkeypatch.setitem(sys.modules, "babel.messages.mofile", None)
    with pytest.raises(UsageError, match="not compiled"):
        read.__wrapped__("xx")
    (tmp_path / "xx.po").unlink()
    (tmp_path / "xx.mo").write_bytes(compiled.getvalue())
    assert read.__wrapped__("xx").gettext("Copies") == "Kopien"


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
    """English pages contain the English texts that the tests of Chinese pages search for, and no Chinese text."""
    page = as_page(of_run(TORCH))
    assert '<html lang="en">' in page
    assert len(english(page)) > 20
    assert not re.search(r"[\u4e00-\u9fff]", page.partition('id="library-')[0])


@pytest.mark.parametrize("render", [as_page, as_text, as_markdown])
def test_findings_are_translated_in_every_format(render: Callable[[Report], str]) -> None:
    text = message("{count} events were not valid JSON, or nested too deep, and are missing", count=3)
    finding = Finding("skipped-events", text)
    report = Report("r", (Source("r", "r", (finding,)),), ())
    assert "3 events were not valid JSON, or nested too deep, and are missing" in render(report)
    with speaking("zh"):
        assert "3 个事件不是有效的 JSON 或嵌套过深，已缺失" in render(report)


def test_tables_are_the_same_in_every_language() -> None:
    """Names, columns and numbers are data and are not translated."""
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
    """The page has kernels, stacks and advice on a device. None of its names is equal to an English sentence."""
    found = load(traces / "torch" / "h100-bert-small.json.gz")
    with speaking("zh"):
        assert english(as_page(run_report(found))) == []
        assert english(as_page(advice_page(advise(found), found, []))) == []


def test_advice_is_called_the_same_in_every_language() -> None:
    named = [one.id for one in advise(trace(TORCH)).advice]
    with speaking("zh"):
        assert [one.id for one in advise(trace(TORCH)).advice] == named


def test_the_command_line_speaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The option and the environment variable select the language, but only while the command runs."""
    command = ["summary", str(TORCH), "--view", "steps"]
    assert (main([*command, "--lang", "zh"]), language()) == (0, "en")
    chinese = capsys.readouterr().out
    assert "每一步及其各阶段的时长" in chinese
    monkeypatch.setenv("PERFKIT_LANG", "zh")
    assert (main(command), capsys.readouterr().out) == (0, chinese)
    assert main([*command, "--lang", "en"]) == 0
    assert "Duration of each step" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        ["advise", str(TORCH), "--format", "json"],
        ["advise", str(TORCH), "--format", "csv"],
        ["compare", str(TORCH), str(PADDLE), "--format", "json"],
    ],
    ids=["advise-json", "advise-csv", "compare-json"],
)
def test_machine_formats_are_the_same_in_every_language(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 0
    expected = capsys.readouterr().out
    assert (main([*command, "--lang", "zh"]), language()) == (0, "en")
    assert capsys.readouterr().out == expected


def test_no_text_rounds_to_a_fixed_number_of_decimals() -> None:
    """``{share:.0%}`` would show a share of 0.3% as 0%. ``{share:ratio}`` shows three significant digits."""
    texts = [str(entry.id) for entry in translations.messages()]
    assert [text for text in texts if re.search(r"\{\w+:[^{}]*\.\d[^{}]*\}", text)] == []
    assert str(message("{share:ratio}", share=0.003)) == "0.30%"


def test_the_data_of_advice_are_english() -> None:
    found = trace(TORCH)
    expected = document(advise(found), found)
    with speaking("zh"):
        assert document(advise(found), found) == expected
        assert str(advise(found).advice[0].title) == "在一次调用中更新所有参数"


def test_an_unknown_language_is_refused() -> None:
    assert LANGUAGES[:1] == ("en",)
    assert "zh" in LANGUAGES
    with pytest.raises(FileNotFoundError):
        read("xx")
