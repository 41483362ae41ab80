"""The vocabulary of operators: each canonical name belongs to one family, and a gradient to its operator's family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit_core.base.operators.names import (
    CANONICAL,
    FAMILIES,
    family,
    is_container,
    native_names,
)


def test_a_name_is_of_one_family() -> None:
    """Otherwise rows of one operator would belong to two families."""
    names = Counter(name for members in FAMILIES.values() for name in members)
    assert [name for name, count in names.items() if count > 1] == []
    assert set(names) == CANONICAL


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("matmul", "matmul"),
        ("matmul_grad", "matmul"),
        ("bmm", "matmul"),
        ("conv_transpose_grad", "conv"),
        ("layer_norm", "normalization"),
        ("norm", "reduction"),
        ("accumulate_grad", "gradient"),
        ("concat", "layout"),
        ("all_reduce", "collective"),
        ("item", "host_read"),
        ("no_such_name", None),
        ("_grad", None),
        ("", None),
        (None, None),
    ],
)
def test_the_family_of_a_name(name: str | None, expected: str | None) -> None:
    """A gradient belongs to its operator's family. ``accumulate_grad`` is not the gradient of an operator."""
    assert family(name) == expected


def test_no_family_is_for_all_remaining_operators() -> None:
    """A family for all remaining operators would make every coverage 100 %."""
    assert {"other", "others", "unknown", "misc", "rest"} & set(FAMILIES) == set()


def test_containers_only_run_other_operators() -> None:
    containers = [name for name in CANONICAL if is_container(name)]
    assert {family(name) for name in containers} == {"control_flow", "compiled_region", "custom_function"}
    assert is_container("compiled_region_grad")
    assert not is_container("matmul")


@pytest.fixture
def adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a function that writes an adapter's ``operator_names.toml`` and returns the name of the package."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> str:
        package = f"adapter_{tmp_path.name}_{len(list(tmp_path.iterdir()))}"
        tmp_path.joinpath(package).mkdir()
        tmp_path.joinpath(package, "__init__.py").touch()
        tmp_path.joinpath(package, "operator_names.toml").write_text(text, encoding="utf-8")
        return package

    return write


def test_a_table_of_an_adapter(adapter: Callable[[str], str]) -> None:
    table = native_names(
        adapter(
            """
            [names]
            matmul = ["mm", "addmm"]
            add = ["add"]
            [patterns]
            libraries = [{ name = "conv", patterns = ["conv[123]d", "winograd"], ignore_case = true }]
            """
        )
    )
    assert table.names == {"mm": "matmul", "addmm": "matmul", "add": "add"}
    ((name, pattern),) = table.patterns["libraries"]
    assert (name, bool(pattern.search("MyWinograd"))) == ("conv", True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[names]\nmatmul = ["mm"]\nbmm = ["mm"]', "operator_names.toml: mm is listed under matmul and under bmm"),
        ('[names]\nmatmul = "mm"', r"operator_names.toml: Expected `array`, got `str` - at `\$.names"),
        ('[name]\nmatmul = ["mm"]', "operator_names.toml: Object "),
        ("[names]\nmatmul = [mm]", "operator_names.toml: Invalid value"),
    ],
)
def test_a_table_that_does_not_fit(adapter: Callable[[str], str], text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        native_names(adapter(text))
