"""Each entry of an adapter's ``remedies.toml`` fits the schema, and its rules, words and texts exist."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest

from perfkit_core.advice.remedies import read_remedies, recorded_words
from perfkit_core.base.system.outside_text import read_toml
from perfkit_core.plugins.contracts import VERIFY, Remedy
from perfkit_core.plugins.manager import get_plugins
from tests.support.events import host, trace
from tests.support.remedy_code import RULES, filled, ident

ADAPTERS = ("perfkit_torch", "perfkit_paddle")
REMEDIES = [pytest.param(one, id=f"{name}-{ident(one)}") for name in ADAPTERS for one in read_remedies(name)]
OF_RULES = {
    "optimizer_class", "workers", "threads", "cause", "outliers", "layout", "numbers", "passes", "dtype", "cache",
    "room", "link", "ranks", "direction", "code", "embeddings", "late", "rank", "compiles", "loop", "slow",
}  # fmt: skip
"""Words that rules provide; all other words come from the recording."""


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_rule_has_a_remedy_and_every_remedy_a_rule(adapter: str) -> None:
    remedies = read_remedies(adapter)
    assert {one.rule for one in remedies} == set(RULES) == set(get_plugins().rules())
    assert get_plugins().framework(adapter.removeprefix("perfkit_")).remedies() == tuple(remedies)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_no_remedy_hides_a_later_one(adapter: str) -> None:
    """The first remedy that fits is used, so general remedies must follow special ones."""
    remedies = read_remedies(adapter)
    hidden = [
        ident(late)
        for at, late in enumerate(remedies)
        for early in remedies[:at]
        if (early.rule, early.mode) == (late.rule, late.mode)
        if all(set(late.when.get(word, ())) <= set(values) and word in late.when for word, values in early.when.items())
    ]
    assert hidden == []


@pytest.mark.parametrize("remedy", REMEDIES)
def test_words_are_filled_by_a_rule_or_by_the_recording(remedy: Remedy) -> None:
    known = {*recorded_words(trace([host("aten::mm", "operator", 0, 10)])), *OF_RULES}
    text = f"{remedy.code} {remedy.api} {remedy.note} {remedy.verify}"
    assert set(re.findall(r"\{(\w+)\}", text)) <= known
    assert set(remedy.when) <= known
    assert "${" not in text


@pytest.mark.parametrize("remedy", REMEDIES)
def test_notes_have_no_other_braces(remedy: Remedy) -> None:
    """Notes are templates, also for translators."""
    assert "{" not in re.sub(r"\{\w+\}", "", remedy.note)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_code_is_python_of_readable_width(remedy: Remedy) -> None:
    compile(filled(remedy), remedy.rule, "exec")
    assert max(map(len, remedy.code.splitlines()), default=0) <= 120


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_every_named_text_is_used(adapter: str) -> None:
    """A text of an adapter is used in the adapter's file, a shared text in the files of both adapters."""
    text = files(adapter).joinpath("remedies.toml").read_text(encoding="utf-8")
    own, shared = read_toml(adapter, "remedies.toml")["texts"], read_toml("perfkit_core.advice", "remedy_texts.toml")
    assert [name for name in (*own, *shared) if f"${{{name}}}" not in text] == []
    assert own.keys() & shared.keys() == set()


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a function that writes an adapter's ``remedies.toml`` and returns the name of the adapter's package."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> str:
        package = f"adapter_{tmp_path.name}"
        tmp_path.joinpath(package).mkdir()
        tmp_path.joinpath(package, "__init__.py").touch()
        tmp_path.joinpath(package, "remedies.toml").write_text(text, encoding="utf-8")
        return package

    return write


def test_a_file_is_read_in_its_order(adapter: Callable[[str], str]) -> None:
    package = adapter(
        """
        [texts]
        half = "dtype={half}"

        [[casts]]
        when.half = ["float16", "bfloat16"]
        code = '''
if fast:
    cast(${half})
'''
        note = '''
        One line.
        Another.
        '''

        [[casts]]
        mode = "static"
        api = "cast"
        since = "3.0"
        note = "Use cast. ${loss-curves}"
        """
    )
    loss = read_toml("perfkit_core.advice", "remedy_texts.toml")["loss-curves"]
    assert read_remedies(package) == (
        Remedy(
            "casts",
            "if fast:\n    cast(dtype={half})",
            "",
            note="One line. Another.",
            verify=VERIFY,
            when={"half": ("float16", "bfloat16")},
        ),
        Remedy("casts", "", "cast", "3.0", "static", f"Use cast. {loss}"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[[casts]]\nnote = "a"\n[[casts]]\nkode = "b"',
            r"/remedies.toml: \[\[casts\]\] 2: Object contains unknown field",
        ),
        ('[[casts]]\nmode = "lazy"', r"\[\[casts\]\] 1: Invalid enum value 'lazy' - at `\$.mode`"),
        ("[[casts]]\nsince = 2.0", r"\[\[casts\]\] 1: Expected `str`, got `float` - at `\$.since`"),
        ('[[casts]]\nwhen.half = "float16"', r"Expected `array`, got `str` - at `\$.when"),
        ('[[casts]]\nnote = "${nothing}"', r"\[\[casts\]\] 1: unknown text nothing"),
        ('[[casts]]\napi = "cast"', r"\[\[casts\]\] 1: neither code nor note"),
        ('[casts]\nnote = "a"', r"/remedies.toml: Expected `array`, got `object`"),
        ('[[casts]\nnote = "a"', r"/remedies.toml: Expected"),
    ],
)
def test_an_entry_that_does_not_fit(adapter: Callable[[str], str], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_remedies(adapter(text))
