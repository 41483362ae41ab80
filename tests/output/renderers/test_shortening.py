"""A shortened name still identifies the function: template and argument lists are removed before the middle of the
name."""

from __future__ import annotations

import pytest

from perfkit_core.base.language.shortening import cut

COPY = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<4u>, "
    "unsigned int, 4, 64, 64>(at::native::Meta<float*, std::array<char*, 3ul>>, float*)"
)


PLACE = "/home/user/project/train.py:7 (loss), numpy/_core/fromnumeric.py (sort), 25 of 26 samples"
FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>"
    "(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
)


@pytest.mark.parametrize(
    ("name", "length", "shown"),
    [
        ("f<int>(float)", 13, "f<int>(float)"),
        ("kernel<long_argument_a, b>(float const*)", 16, "kernel<…>(…)"),
        ("outer<inner<aaaaaaaaaa, bbbbbbbbbb>, c>(x)", 16, "outer<…>(x)"),
        ("outer<inner<aaaaaaaaaa, bbbbbbbbbb>, c>(x)", 24, "outer<inner<…>, c>(x)"),
        (COPY, 47, "void at::native::(…)::CatArrayBatchedCopy<…>(…)"),
        (COPY, 45, "void at::native::(…)::CatArrayBatchedCopy<…>"),
        (COPY, 42, "void at::native::(…)::CatArrayBatchedCopy"),
        (COPY, 40, "at::native::(…)::CatArrayBatchedCopy"),
        (COPY, 30, "…::CatArrayBatchedCopy"),
        (FILL, 24, "…::vectorize…wise_kernel"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n", 20, "sm90_xmma_…_f32_tn_n"),
        (FILL, 80, "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<f…>(…)"),
        ("operator<(first_type, second_type) const &", 20, "operator<(…) const &"),
        ("a->b<first_type, second_type> in the end", 20, "a->b<…> in the end"),
        ("a_profiler_of_resnet50.py(42): <module>", 30, "a_profiler_of_r…(42): <module>"),
        (PLACE, 80, "/home/user/project/train.py:7 (loss), numpy/_core/fromnumeric.py (sort)"),
        (PLACE, 48, "train.py:7 (loss), fromnumeric.py (sort)"),
        (PLACE, 30, "train.py:7 (loss), sort"),
        ("no lists, only a long sentence of words", 20, "no lists, … of words"),
        ("(" * 50, 11, "(((((…((((("),
    ],
)
def test_lists_go_first(name: str, length: int, shown: str) -> None:
    result = cut(name, length)
    assert result == shown
    assert len(result) <= length


def test_a_short_list_is_kept() -> None:
    assert "(1510)" in cut("module.py(1510): call_the_implementation_of_the_layer", 30)


def test_an_indent_stays_and_leaves_room() -> None:
    assert cut("    " + "x" * 100, 20) == "    " + "x" * 8 + "…" + "x" * 7
    assert cut("· · " + "x" * 100, 20) == "· · " + "x" * 8 + "…" + "x" * 7
    assert cut(" " * 40 + "x" * 100, 20) == " " * 40 + "xxxxx…xxxx"
