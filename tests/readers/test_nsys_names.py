"""Kernel names in the spelling of Nsight Systems become those of GNU's demangler."""

from __future__ import annotations

import pytest

from perfkit_core.readers.nsys.event_tables import gnu_name

pytestmark = pytest.mark.bare


@pytest.mark.parametrize(
    ("nsight", "gnu"),
    [  # the second text is what c++filt prints for the mangled name
        ("cutlass_gemm_128x64", "cutlass_gemm_128x64"),
        ("void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, (int)4>>(T3)",
         "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, 4> >(at::native::ReduceOp<float, 4>)"),
        ("void <unnamed>::softmax<float, (bool)0>(T1 *, const T1 *, int, const bool *)",
         "void (anonymous namespace)::softmax<float, false>(float*, float const*, int, bool const*)"),
        ("void f<void g<long>(A &, const T1 &)::[lambda(int) (instance 2)], b<char *, (unsigned long)2>>(int, T1, T2)",
         "void f<g<long>(A&, long const&)::{lambda(int)#2}, b<char*, 2ul> >"
         "(int, g<long>(A&, long const&)::{lambda(int)#2}, b<char*, 2ul>)"),
        ("void k<rsqrt(B &)::[lambda() (instance 2)]::operator ()() const::[lambda(float) (instance 1)]>(T1)",
         "void k<rsqrt(B&)::{lambda()#2}::operator()() const::{lambda(float)#1}>"
         "(rsqrt(B&)::{lambda()#2}::operator()() const::{lambda(float)#1})"),
        ("void k<(unsigned int)4, (long)-1, (unsigned long long)7>(t<const long, (short)2>)",
         "void k<4u, -1l, 7ull>(t<long const, (short)2>)"),
        ("unbalanced<<(", "unbalanced<<("),
        ("operator>(a<b>)", "operator>(a<b>)"),
        ("k<" * 200 + ">" * 200, "k<" * 200 + ">" * 200),
        (f"f<{'a' * 300}>" + "(T1, T1)" * 1, f"f<{'a' * 300}>({'a' * 300}, {'a' * 300})"),
    ],
)  # fmt: skip
def test_kernels_get_the_names_of_framework_profilers(nsight: str, gnu: str) -> None:
    assert gnu_name(nsight) == gnu


def test_a_name_cannot_grow_without_bound() -> None:
    name = "f<int>"
    for _ in range(60):
        name = f"f<{name}(T1, T1, T1)>"
    assert len(gnu_name(f"{name}(T1, T1)")) < 1 << 15
