"""Data that packages carry in TOML files: operator names, kernel families, remedies."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def read_toml(package: str, name: str) -> dict[str, Any]:
    """Return what the file ``name`` in an importable package holds. Raises ValueError where it is not TOML."""
    text = (files(package) / name).read_text(encoding="utf-8")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{package}/{name}: {error}") from None


def convert(value: object, to: type[T], where: str) -> T:
    """Return a part of such a file as the type ``to``. Raises ValueError, beginning with ``where``, if it cannot be."""
    try:
        return msgspec.convert(value, to)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}") from None
