"""The vocabulary: every canonical name is of one family, gradients with their operators."""

from __future__ import annotations

from collections import Counter

import pytest

from perfkit_core.operator_names import CANONICAL, CONTAINERS, is_canonical, is_container
from perfkit_core.operators.families import FAMILIES, family
from perfkit_core.operators.table_text import read_table
from perfkit_core.operators.vocabulary import VOCABULARY


def test_a_name_is_of_one_family() -> None:
    """Else rows of one operator would lie in two families."""
    names = Counter(name for text in VOCABULARY.values() for name in text.split())
    assert [name for name, count in names.items() if count > 1] == []
    assert set(names) == CANONICAL
    assert len(FAMILIES) == len(set(FAMILIES)) == len(VOCABULARY)


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
    """A gradient is of its operator's family; ``accumulate_grad`` is no gradient of an operator."""
    assert family(name) == expected


def test_no_family_takes_what_no_other_has() -> None:
    """A family of the rest would make every coverage whole."""
    assert {"other", "others", "unknown", "misc", "rest"} & set(FAMILIES) == set()


def test_containers_only_run_other_operators() -> None:
    """What is inside of them has families of its own, so they never stand for it."""
    assert {family(name) for name in CONTAINERS} == {"control_flow", "compiled_region", "custom_function"}
    assert is_container("compiled_region_grad")
    assert not is_container("matmul")
    assert all(is_canonical(name) for name in CONTAINERS)


def test_a_table_of_an_adapter() -> None:
    """Lines that are indented go on; a name in two places is a mistake."""
    assert read_table("matmul: mm addmm\n mv\nadd: add\n") == {
        "mm": "matmul", "addmm": "matmul", "mv": "matmul", "add": "add"}  # fmt: skip
    with pytest.raises(ValueError, match="mm is matmul and bmm"):
        read_table("matmul: mm\nbmm: mm")
