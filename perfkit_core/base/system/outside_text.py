"""Text from outside: JSON, TOML and numbers in files, answers and variables that perfkit did not just write itself; and
cells of CSV files.

Python's decoders end in errors of many classes for text that is nested too deep, has numbers of thousands of digits, or
is not UTF-8, and some texts of a few kilobytes fill the memory. The functions here have limits, and one error:
ValueError, whose text is one short line. The limits are listed in ``docs/reliability.md``.

A spreadsheet runs a cell whose text begins with certain characters as a formula. An apostrophe before such a text
prevents this, as the OWASP recommends (CSV injection). Numbers are not changed. Texts with line breaks are quoted, also
those with a bare carriage return, which many readers take for the end of a row."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from perfkit_core.base.system.paths import open_binary
from perfkit_core.errors import abridged

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")

MOST_FILE_BYTES: Final = 64 << 20
"""Largest JSON file that is read as a whole. Trace files are read in portions, and have other limits."""
MOST_TOML_BYTES: Final = 4 << 20
"""Python's TOML reader needs a hundred times the memory of the text."""
MOST_DOTS: Final = 100
"""Largest number of dots in a line of TOML. A key ``a.a.a…`` with 100,000 dots takes 24 GB of memory."""
MOST_DIGITS: Final = 18
"""Largest number of digits of a whole number in a variable or an option. The number fits in 64 bits."""
LONGEST_REASON: Final = 200
"""Maximum number of characters of a decoder's reason, which may quote a name of the text."""


@overload
def decode_json(content: bytes | bytearray | str) -> Any: ...
@overload
def decode_json(content: bytes | bytearray | str, to: type[T]) -> T: ...
def decode_json(content: bytes | bytearray | str, to: Any = Any) -> Any:
    """Return the JSON value as an object of type ``to``. Raises ValueError.

    Python writes the bytes of a path that are not UTF-8 as lone surrogates, which only its own decoder accepts."""
    import json

    import msgspec

    try:
        try:
            return msgspec.json.decode(content, type=to)
        except msgspec.DecodeError as error:
            if "surrogate" not in str(error):
                raise
            return msgspec.convert(json.loads(content), to)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except (msgspec.MsgspecError, ValueError) as error:
        if not isinstance(content, str):
            decode_utf8(content)  # versions of msgspec report it in different words, without the position in the text
        raise ValueError(_reason(error)) from None


def decode_toml(text: str) -> dict[str, Any]:
    """Return the tables of a TOML text. Raises ValueError."""
    import tomllib

    if len(text) > MOST_TOML_BYTES:
        raise ValueError(f"it is larger than {MOST_TOML_BYTES >> 20} MiB")
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") > MOST_DOTS:
            raise ValueError(f"line {number} has more than {MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(_reason(error)) from None
    except ValueError:  # from int(), whose text is about a setting of Python
        raise ValueError("a number has too many digits") from None


def convert(value: object, to: type[T], where: str) -> T:
    """Convert a decoded value to type ``to``. Raises ValueError, beginning with ``where``, if it does not fit."""
    import msgspec

    try:
        return msgspec.convert(value, to)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {_reason(error)}") from None


def read_file(path: Path, most_bytes: int = MOST_FILE_BYTES) -> bytes:
    """Return the content of a file, which may be in a store. Raises OSError, SourceError if a store fails, and
    ValueError if the file is larger than ``most_bytes``."""
    with open_binary(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"it is larger than {most_bytes >> 20} MiB")
    return content


def decode_utf8(content: bytes | bytearray) -> str:
    """Return the text. Raises ValueError with the position of the first byte that is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None


def read_toml(package: str, name: str) -> dict[str, Any]:
    """Return the content of a TOML file in an importable package. Raises ValueError if the file is not valid TOML."""
    from importlib.resources import files

    try:
        return decode_toml(decode_utf8((files(package) / name).read_bytes()))
    except ValueError as error:
        raise ValueError(f"{package}/{name}: {error}") from None


def whole_number(text: str) -> int | None:
    """Return the number that up to 18 decimal digits denote, or None for any other text."""
    return int(text) if re.fullmatch(rf"[0-9]{{1,{MOST_DIGITS}}}", text) else None


def _reason(error: Exception) -> str:
    return abridged(str(error), LONGEST_REASON)


_BEGINNINGS: Final = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""The last four are the full-width forms of the first four."""
_PATTERN: Final = r"^([=+\-@\t\r\n\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}])"
_RFC: Final = "\r\n"
"""The end of a row. Python's writer quotes texts that contain one of these characters."""


def cell(value: Any) -> Any:
    """Return the value of a cell for a CSV file."""
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple(_BEGINNINGS)) else value


def rows(values: Iterable[Iterable[Any]]) -> str:
    """Return rows of cells as CSV. Rows end in a line feed."""
    lines: list[str] = []
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator=_RFC)
    writer.writerows(map(cell, row) for row in values)
    return "".join(f"{line.removesuffix(_RFC)}\n" for line in lines)


def csv_of(table: pd.DataFrame) -> str:
    """Return a table as CSV, with its column names. Rows end in a carriage return and a line feed."""
    text: str = table.map(cell).rename(columns=cell).to_csv(index=False, lineterminator=_RFC)
    return text


def texts(column: pa.Array) -> pa.Array:
    """Return a column of texts for a CSV file."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(column, pattern=_PATTERN, replacement=r"'\1")
