"""Text that Python's decoders end on in errors of many classes is refused with one short reason."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from perfkit_core.base.system import outside_text
from perfkit_core.errors import LONGEST_MESSAGE, LONGEST_WORD, SourceError, abridged
from tests.support.paths import ROOT

DIGITS = "9" * 6000
DEEP = "[" * 100_000


OTHER_DECODERS = {
    "perfkit_core/base/system/outside_text.py": "the limits",
    "perfkit_core/base/language/messages.py": "literals of perfkit's own scripts",
    "perfkit_core/compare/pair.py": "a column of event tables",
    "perfkit_core/integrations/agents/tools.py": "the result of a child process",
    "perfkit_core/integrations/sql/bounded.py": "the result of a child process",
    "perfkit_core/recording/child_processes.py": "a variable that perfkit record has set",
    "perfkit_core/readers/chrome/reader.py": "headers of traces, with limits of their own",
    "perfkit_core/testing/conformance.py": "what a test has written",
    "perfkit_core/trace/assembly/graph_capture.py": "a column of event tables",
}
"""Files that call Python's decoders themselves, and what they decode."""


class Point(msgspec.Struct, forbid_unknown_fields=True):
    x: int


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (DIGITS, "out of range"),
        (DEEP, "nested too deep"),
        (b'"\xff"', "not UTF-8"),
        ('{"x": 1e999}', "out of range"),
        ('{"x": "1"}', "Expected `int`, got `str`"),
        ('{"x"', "truncated"),
        (f'{{"{"x" * 10**6}": 1}}', "unknown field `xxx"),
    ],
)
def test_json_that_cannot_be_decoded(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        outside_text.decode_json(text, Point) if '"x' in str(text) else outside_text.decode_json(text)
    assert len(str(caught.value)) <= outside_text.LONGEST_REASON + 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"a = {DIGITS}", "too many digits"),
        (f"a = {DEEP}", "nested too deep"),
        ("a = " + "{a=" * 10_000, "nested too deep"),
        ("\na" + ".a" * 100_000 + " = 1", "line 2 has more than 100 dots"),
        ("a = 1\n" * (1 << 20), "larger than 4 MiB"),
        ("a = ", "Invalid value"),
    ],
)
def test_toml_that_cannot_be_decoded(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        outside_text.decode_toml(text)


def test_names_that_are_no_utf8() -> None:
    assert outside_text.decode_json(r'{"path": "a\udcff"}') == {"path": "a\udcff"}
    assert outside_text.decode_json(r'{"path": "a\udcff"}', dict[str, str]) == {"path": "a\udcff"}
    with pytest.raises(ValueError, match="surrogates not allowed"):
        outside_text.decode_json(r'{"path": "a\udcff"}', dict[str, int])


def test_files_are_read_up_to_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12")
    assert outside_text.read_file(file, 2) == b"12"
    with pytest.raises(ValueError, match="larger than 0 MiB"):
        outside_text.read_file(file, 1)
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        outside_text.read_file(Path("/dev/zero"), 1 << 20)


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_whole_numbers(text: str, number: int) -> None:
    assert outside_text.whole_number(text) == number


@pytest.mark.parametrize("text", ["", "-1", "1.5", " 1", "1\n", "²", "٣", "9" * 19, DIGITS])
def test_texts_that_are_no_whole_numbers(text: str) -> None:
    assert outside_text.whole_number(text) is None


def test_errors_do_not_repeat_long_names() -> None:
    assert abridged("short") == "short"
    text = str(SourceError(f"a{'x' * 10**6}z: no such file or folder", "check the path"))
    assert text.startswith("axxx")
    assert text.endswith("xxxz: no such file or folder; check the path")
    assert len(text) < LONGEST_WORD + 100
    assert len(SourceError("many words " * 10**5).message) <= LONGEST_MESSAGE + 3


def test_other_files_do_not_call_the_decoders_of_python() -> None:
    files = [file for package in ROOT.glob("perfkit*") for file in package.rglob("*.py")]
    decoding = {file for file in files if re.search(r"\bjson\.loads?\(|\btomllib\.", file.read_text(encoding="utf-8"))}
    assert {str(file.relative_to(ROOT)) for file in decoding} == set(OTHER_DECODERS)
