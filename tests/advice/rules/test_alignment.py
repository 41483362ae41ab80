"""Rule 24: half-precision products whose rows do not start at multiples of 16 bytes. The outcomes are in
``tests/golden/advice/rules``."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.advice.rules import unaligned_matmul
from perfkit_core.advice.thresholds import Thresholds
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_paddle.operator_names import operator_name as paddle_name
from perfkit_torch.operator_names import operator_name as torch_name
from tests.support.device_steps import Op, training
from tests.support.rule_cases import check_rule


def padded(kernel: str, shapes: str, us: int = 100, dtypes: str = '["c10::Half","c10::Half","c10::Half"]') -> Trace:
    """Return steps with a half-precision product of ``us`` µs and 900 µs of other work."""
    more = {"shapes": shapes, "dtypes": dtypes}
    ops = Op("aten::relu", [("relu", 900)]), Op("aten::addmm", [(kernel, us)], more=more)
    return training(*ops, steps=2, names=torch_name)


VOCABULARY = "[[30522],[141,512],[512,30522],[],[]]"
S16816 = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_nn"


def test_unaligned_matmul() -> None:
    """Three tenths of the product are saved."""
    more = {"shapes": "[[16, 141, 512], [512, 30522]]", "dtypes": '["float16", "float16"]'}
    of_paddle = Op("relu dygraph", [("relu", 900)]), Op("matmul dygraph", [(S16816, 100)], more=more)
    floats = '["float","float","float"]'
    check_rule("unaligned-matmul", {
        "30,522 columns": padded(S16816, VOCABULARY),
        "30,522 columns in Paddle": training(*of_paddle, names=paddle_name),
        "single precision": padded("ampere_sgemm_128x64_nn", VOCABULARY, dtypes=floats),
        "47 of 954 µs, 4.93%": padded(S16816, VOCABULARY, 47),
        "48 of 955 µs, 5.03%": padded(S16816, VOCABULARY, 48),
        "without shapes": training(Op("aten::mm", [(S16816, 300)]), names=torch_name),
    })  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "shapes", "fires"),
    [
        (
            S16816,
            "[[30528],[141,512],[512,30528],[],[]]",
            False,
        ),  # the row lengths are aligned; 141 is a number of rows
        (S16816, "[[64],[141,9],[9,64],[],[]]", True),
        (S16816, "[[64],[141,4],[4,64],[],[]]", False),  # rows below 8 need no padding
        ("cutlass_80_tensorop_f16_s16816gemm_f16_128x64_tn_align8", VOCABULARY, False),
        (
            "cutlass_80_tensorop_f16_s16816gemm_f16_128x64_tn_align2",
            "[[64],[141,512],[512,64]]",
            True,
        ),  # align2: columns count too
        ("cutlass_80_tensorop_f16_s16816gemm_f16_128x64_tn_align2", "[[64],[144,512],[512,64]]", False),
    ],
)
def test_dimensions_and_access_sizes(kernel: str, shapes: str, fires: bool) -> None:
    assert bool(unaligned_matmul.find(RuleInput(padded(kernel, shapes)))) is fires


@pytest.mark.parametrize(
    ("shapes", "strides", "fires"),
    [
        ("[[788,768],[768,768]]", "[[768,1],[1,768]]", False),
        ("[[768,788],[788,768]]", "[[1,768],[768,1]]", False),  # transposed: 788 rows of 768 elements
        ("[[768,788],[788,768]]", "[[788,1],[768,1]]", True),
        ("[[64,512],[512,30522]]", "[[512,1],[1,512]]", True),  # the rows of the product are unaligned
        ("[[30522,64],[64,512]]", "[[1,30522],[512,1]]", True),
        ("[[64,512],[512,64]]", "[[513,1],[64,1]]", True),  # stride of a larger tensor
    ],
)
def test_strides_determine_the_rows_in_memory(shapes: str, strides: str, fires: bool) -> None:
    more = {
        "shapes": shapes,
        "dtypes": '["c10::Half","c10::Half"]',
        "args": f'{{"Input Strides":{strides},"Ev Idx":3}}',
    }
    ops = Op("aten::relu", [("relu", 900)]), Op("aten::mm", [(S16816, 100)], more=more)
    assert bool(unaligned_matmul.find(RuleInput(training(*ops, names=torch_name)))) is fires


def test_dimensions_of_a_real_recording(traces: Path) -> None:
    """BERT's vocabulary of 30,522 words is not a multiple of 8. cuBLAS kernels named ``align2`` read two numbers in one
    access."""
    facts = RuleInput(load(traces / "torch" / "h100-bert-small.json.gz"), Thresholds(multiply_share=0))
    (found,) = unaligned_matmul.find(facts)
    names = facts.trace.events["name"].to_pylist()
    assert found.fill["size"] == "30522"
    assert ["align2" in names[row] for row in found.rows] == [True]
