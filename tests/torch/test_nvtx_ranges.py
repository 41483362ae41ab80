"""The texts of NVTX ranges that torch writes, as emit_nvtx of several versions wrote them."""

from __future__ import annotations

import pytest

from perfkit_core.plugins.frameworks import RangeMeaning
from perfkit_torch.nvtx_ranges import range_meaning

pytestmark = pytest.mark.bare


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("aten::add", RangeMeaning("aten::add", "operator")),
        ("aten::add, seq = 12", RangeMeaning("aten::add", "operator", sequence=12)),
        ("aten::add, op_id = 314359", RangeMeaning("aten::add", "operator")),
        ("aten::mm, seq = 7, op_id = 2, sizes = [[2, 3], [3, 4], []], input_op_ids = [(1,0),(0,-1)]",
         RangeMeaning("aten::mm", "operator", sequence=7, shapes="[[2,3],[3,4],[]]")),
        ("detach_, op_id = 317160", RangeMeaning("detach_", "operator")),
        ("flash_attn::_flash_attn_forward, op_id = 5", RangeMeaning("flash_attn::_flash_attn_forward", "operator")),
        ("autograd::engine::evaluate_function: MmBackward0, seq = 7, op_id = 9",
         RangeMeaning("autograd::engine::evaluate_function: MmBackward0", "operator", "backward", sequence=7)),
        ("MmBackward0, seq = 7, op_id = 10", RangeMeaning("MmBackward0", "operator", "backward", sequence=7)),
        ("Optimizer.step#AdamW.step, op_id = 11", RangeMeaning("Optimizer.step#AdamW.step", "optimizer", "optimizer")),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__, op_id = 12",
         RangeMeaning("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "dataloader", "dataloader")),
        ("ProfilerStep#4, op_id = 13", RangeMeaning("ProfilerStep#4", "step", step=4)),
        ("FSDP::pre_forward (encoder.block.14.layer.1), op_id = 14",
         RangeMeaning("FSDP::pre_forward (encoder.block.14.layer.1)", "annotation")),
        ("FSDP::inputs_to_device, op_id = 15", RangeMeaning("FSDP::inputs_to_device", "annotation")),
        ("forward, op_id = 16", RangeMeaning("forward", "annotation")),
        ("forward", None),
        ("cudf::read_parquet", None),
        ("loss, seq = none", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_meaning_of_a_range(text: str, meaning: RangeMeaning | None) -> None:
    assert range_meaning(text) == meaning
