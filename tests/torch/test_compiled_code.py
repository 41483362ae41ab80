"""What Inductor writes for a GPU, parsed: comments of Triton kernels, and a trace of a GPU with such kernels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from perfkit_core.errors import SourceError
from perfkit_core.exporters import stacks
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers import compile_info
from perfkit_core.readers.load import load
from perfkit_core.trace.assembly.kernel_calls import origins, with_graphs
from perfkit_core.trace.model import compiled_graph
from perfkit_core.trace.model.compiled_graph import CompiledGraph, common_stack
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.code import split_names
from perfkit_core.views.devices import kernels
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators import compiled
from perfkit_torch import compile_logs
from perfkit_torch.compiled_code import GraphTexts, fused_operators
from tests.support.events import host, trace

NORM, GATE = "triton_red_fused_add_mean_mul_pow_rsqrt_0", "triton_poi_fused__unsafe_view_mul_silu_2"
POW_TO_MUL = "Original ATen: [aten.pow, aten.mean, aten.add, aten.rsqrt, aten.mul]"
CODE = f"""
# kernel path: /tmp/torchinductor_root/mw/cmw.py
# Topologically Sorted Source Nodes: [pow_1, mean, add, rsqrt, mul], {POW_TO_MUL}
# Source node to ATen node mapping:
#   add => add_1
#   mean => mean_1
#   mul => mul_1
# Graph fragment:
#   %arg0_1 : Tensor "bf16[8, 4096, 2048]"[8388608, 2048, 1]cuda:0 = PlaceHolder[target=arg0_1]
#   %mean_1 : Tensor "f32[8]"[1]cuda:0 = call_function[target=torch.ops.aten.mean.dim](args = (%pow_1, [-1], True))
#   %mul_1 : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%arg0_1, %rsqrt))
{NORM} = async_compile.triton('{NORM}', \'\'\'
import triton
# Graph fragment:
\'\'\', device_str='cuda')

{GATE} = async_compile.triton('{GATE}', \'\'\'
\'\'\', device_str='cuda')

async_compile.wait(globals())

def call(args):
    with torch.cuda._DeviceGuard(0):
        # Topologically Sorted Source Nodes: [pow_1, mean, add], {POW_TO_MUL}
        stream0 = get_raw_stream(0)
        {NORM}.run(arg1_1, arg2_1, buf1, 32768, 2048, stream=stream0)
        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.mm]
        extern_kernels.mm(reinterpret_tensor(buf1, (32768, 2048), (2048, 1), 0), arg3_1, out=buf2)
        # Topologically Sorted Source Nodes: [silu, mul_2], Original ATen: [aten._unsafe_view, aten.silu, aten.mul]
        {GATE}.run(buf2, buf3, 268435456, stream=stream0)
        buf4 = torch.ops.mylib.scan.default(buf3)
    return (buf4, )
"""
COMPILED = """class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "bf16[8, 4096, 2048]"):
        # File: /app/norm.py:11 in forward, code: variance = x.pow(2).mean(-1, keepdim=True)
        mean_1: "f32[8, 4096, 1]" = torch.ops.aten.mean.dim(pow_1, [-1], True);  pow_1 = None
        # File: /app/norm.py:12 in forward, code: return self.weight * x * rsqrt(variance)
        mul_1: "f32[8, 4096, 2048]" = torch.ops.aten.mul.Tensor(arg0_1, rsqrt)
"""
TRACED = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "bf16[8, 4096, 2048]"):
        l_x_ = L_x_
        # File: /app/norm.py:11 in forward, code: variance = x.pow(2).mean(-1, keepdim=True)
        mean: "f32[8, 4096, 1]" = pow_1.mean(-1, keepdim = True);  pow_1 = None
        # File: /app/norm.py:12 in forward, code: return self.weight * x * rsqrt(variance)
        mul: "f32[8]" = l_self_modules_layers_modules_0_modules_norm_parameters_weight_ * l_x_
        # File: /app/mlp.py:30 in forward, code: return silu(self.gate(x)) * self.up(x)
        linear: "f32[8]" = linear(mul, l_self_modules_layers_modules_0_modules_mlp_modules_gate_parameters_weight_)
        silu: "f32[8]" = torch.nn.functional.silu(linear);  linear = None
"""


def test_comments_of_triton_kernels_name_operators_layers_and_lines() -> None:
    graph = GraphTexts(CODE, "fkey", COMPILED, TRACED).graph()
    assert graph.event == "## Call CompiledFxGraph fkey ##"
    norm, mm, gate, scan = graph.calls
    assert (norm.event, norm.operators) == (NORM, ("aten::pow", "aten::mean", "aten::add", "aten::rsqrt", "aten::mul"))
    assert norm.lines == ("/app/norm.py:11", "/app/norm.py:12")
    assert norm.stack == "/app/norm.py(11): forward"
    assert norm.modules == ("", "layers.0.norm"), "nothing before the mean tells its layer, so it is the model's own"
    assert norm.module is None
    assert (mm.event, mm.fused, mm.module, mm.lines) == ("aten::mm", False, "layers.0.mlp.gate", ("/app/mlp.py:30",))
    assert (gate.operators, gate.module) == (("aten::_unsafe_view", "aten::silu", "aten::mul"), "layers.0.mlp")
    assert (scan.event, scan.operators, scan.stacks) == ("mylib::scan", ("mylib::scan",), ())


@pytest.mark.parametrize(
    ("kernel", "operators"),
    [
        ("triton_per_fused__native_batch_norm_legit_functional_mean_1", "_native_batch_norm_legit_functional mean"),
        ("graph_0_cpp_fused_add_native_layer_norm_native_layer_norm_backward_sum_4",
         "add native_layer_norm native_layer_norm_backward sum"),
        ("cpp_fused__softmax__softmax_backward_data_div_expand_0", "_softmax _softmax_backward_data div expand"),
        ("triton_tem_fused_mm_relu_t_5", "mm relu t"),
        ("cpp_fused_add_3", "add"),
        ("triton_poi_fused_0", ""),
        ("vectorized_elementwise_kernel", ""),
    ],
)  # fmt: skip
def test_operators_in_the_name_of_a_kernel(kernel: str, operators: str) -> None:
    assert fused_operators(kernel) == tuple(f"aten::{name}" for name in operators.split())


def test_words_in_a_name_that_are_no_operators_have_no_namespace() -> None:
    assert fused_operators("triton_poi_fused_add_cg_unsafe_op_0") == ("aten::add", "cg_unsafe_op")


def test_kernels_on_a_gpu_get_the_layers_of_their_graph(traces: Path) -> None:
    """A trace of an AMD GPU, with the graph key of its recording. The times are those of the events in the file."""
    trace = load(traces / "torch" / "compile-triton.json.gz")
    graph = GraphTexts(CODE, "fal4xpiah2v6blbfmwwonu52dvevbsmlh743q5tkclrt4gcqpzea", COMPILED, TRACED).graph()
    found = with_graphs(trace, [graph])
    rows = compiled.table(found, ViewRequest()).set_index("name")
    by_layer = table_of(kernels.VIEW, found, ViewRequest(by=("module",))).set_index("name")
    assert pd.isna(by_layer.loc[NORM, "module"])
    assert by_layer.loc[GATE, "module"] == "layers/0/mlp"
    assert rows.loc[GATE, "total_device_ns"] == by_layer.loc[GATE, "total_device_ns"]
    assert len(origins(trace).call_rows) == 0


def test_kernel_information_of_a_package(tmp_path: Path) -> None:
    stack = '  File "/app/mlp.py", line 30, in forward\n    return silu(x)\n'
    about = {f"{GATE}:3": {"stack_traces": [stack], "post_grad_nodes": ["mul"], "pre_grad_nodes": []},
             "extern_kernels.mm:1": {"stack_traces": [stack]}, "torch.ops.aten.sort.stable:2": {},
             "torch.ops.mkldnn._linear_pointwise.default": {}}  # fmt: skip
    file = tmp_path / "kernel_information.json"
    file.write_text(json.dumps(about))
    assert compile_logs.beside(tmp_path / "trace.json") == [file]
    ((gate, mm, sort, linear),) = (graph.calls for graph in compile_logs.read(tmp_path))
    assert (gate.event, gate.fused, gate.lines) == (GATE, True, ("/app/mlp.py:30",))
    assert (mm.event, mm.fused, mm.stack) == ("aten::mm", False, "/app/mlp.py(30): forward")
    assert (sort.event, sort.stacks) == ("aten::sort", ())
    assert linear.event == "mkldnn::_linear_pointwise"


def test_damaged_files_are_read_as_far_as_possible(tmp_path: Path) -> None:
    prefix = "V1125 20:23:41.207000 9047 torch/_inductor/graph.py:1] "
    ids = '"frame_id": 0, "frame_compile_id": 0, "attempt": 0, "has_payload": "0"'
    lines = [
        "not a record", "\tno entry before", f"{prefix}{{broken", f"{prefix}{{\"artifact\": {{\"name\": 7}}, {ids}}}",
        f'{prefix}{{"inductor_output_code": {{}}, {ids}}}', "\tno graph before",
        f'{prefix}{{"inductor_post_grad_graph": {{}}, {ids}}}', "\tx = 1",
        f'{prefix}{{"inductor_output_code": {{}}, {ids}}}', *(f"\t{line}" for line in CODE.splitlines()),
        f'{prefix}{{"artifact": {{"name": "inductor_provenance_tracking_kernel_stack_traces"}}, {ids}}}',
        '\t{"a": [1, {}]',
        f'{prefix}{{"artifact": {{"name": "fx_graph_cache_miss"}}, {ids}}}', '\t{"key": 5}',
    ]  # fmt: skip
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    log.write_bytes("\n".join(lines).encode() + b"\n\t\xff\x00")
    (graph,) = compile_logs.read(tmp_path)
    assert (graph.event, [call.event for call in graph.calls]) == (None, [NORM, "aten::mm", GATE, "mylib::scan"])
    for damaged in ("[" * 5000, '{"a": ' + "[" * 200_000 + "]" * 200_000 + "}"):
        (tmp_path / "kernel_information.json").write_text(damaged)
        assert compile_logs.read(tmp_path) == (graph,)


def test_huge_line_numbers_are_no_lines(tmp_path: Path) -> None:
    traces = [f'File "a.py", line {line}, in f' for line in ("9" * 5000, "3", "5")]
    (tmp_path / "kernel_information.json").write_text(json.dumps({GATE: {"stack_traces": traces}}))
    ((gate,),) = (graph.calls for graph in compile_logs.read(tmp_path))
    assert (gate.lines, gate.stack) == (("a.py:3", "a.py:5"), "a.py(3): f")
    huge = f"a.py({'9' * 5000}): f"
    assert common_stack([huge, "a.py(3): f"]) is None
    assert stacks.frame(huge).line is None
    assert split_names([huge, "a.py(3): f"])["line"].tolist() == [pd.NA, 3]


def attached(
    rows: list[dict[str, Any]], path: Path, *given: Path, compiled: Sequence[CompiledGraph] = (), **meta: Any
) -> Trace:
    recorded = trace(rows).with_meta(**{"framework": "torch"} | meta)
    recorded = recorded.with_tables(compiled_graphs=compiled_graph.to_table(compiled))
    return compile_info.attached(recorded, path, get_plugins(), given)


KERNEL = [host("net", "annotation", 0, 100), host(GATE, "operator", 10, 5)]


def test_a_damaged_file_next_to_a_trace_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_logs, "_LARGEST_BYTES", 100)
    (tmp_path / "kernel_information.json").write_text(json.dumps({GATE: {}}))
    code = tmp_path / "torch_compile_debug" / "output_code.py"
    code.parent.mkdir()
    code.write_text(CODE)
    found = attached(KERNEL, tmp_path / "t.json")
    assert [call.event for graph in found.compiled_graphs for call in graph.calls] == [GATE]
    (finding,) = (finding for finding in found.quality if finding.code == "compile-info-unreadable")
    assert finding.note
    assert str(finding.message).startswith(f"a file next to the trace is left out: {code}: larger than")
    with pytest.raises(SourceError, match="larger than"):
        attached(KERNEL, tmp_path / "t.json", code)


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"framework": "paddle"}, "for the framework of this trace"),
        ({"framework": None}, "for the framework of this trace"),
        ({"compiled": (GraphTexts(CODE).graph(),)}, "the recording already has this information"),
        ({}, "matches no kernel of this trace"),
    ],
)
def test_given_files_that_are_not_used_are_a_finding(tmp_path: Path, meta: dict[str, Any], reason: str) -> None:
    (tmp_path / "kernel_information.json").write_text(json.dumps({NORM: {}}))
    quality = attached(KERNEL, tmp_path / "t.json", tmp_path, **meta).quality
    (text,) = (str(finding.message) for finding in quality if finding.code == "compile-info-unused")
    assert reason in text
    with pytest.raises(SourceError, match="no such file or folder"):
        attached(KERNEL, tmp_path / "t.json", tmp_path / "nothing", **meta)


def test_each_rank_reads_its_own_log_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = '"frame_id": 0, "has_payload": "0"'
    for name, operator in (("rank_0_a", "mm"), ("rank_1_b", "bmm"), ("c", "sum")):
        lines = [f'V1125 20:23:41.207 9047 x:1] {{"{kind}": {{}}, {ids}}}\n\tdef call(args):\n\t    aten.{operator}(x)'
                 for kind in ("inductor_post_grad_graph", "inductor_output_code")]  # fmt: skip
        (tmp_path / f"dedicated_log_torch_trace_{name}.log").write_text("\n".join(lines))

    def events(rank: int | None) -> set[str]:
        return {call.event for graph in compile_logs.read(tmp_path, rank) for call in graph.calls}

    assert events(1) == {"aten::bmm", "aten::sum"}
    assert events(None) == events(2) == {"aten::mm", "aten::bmm", "aten::sum"}
    assert [file.name[26:] for file in compile_logs.beside(tmp_path / "t.json", 0)] == ["c.log", "rank_0_a.log"]
    monkeypatch.delattr(compile_logs, "logged")
    assert events(0) == {"aten::mm", "aten::sum"}


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_logs, "_LARGEST_BYTES", 100)
    file = tmp_path / "output_code.py"
    file.write_text(CODE)
    with pytest.raises(SourceError, match="larger than"):
        compile_logs.read(file)
    with pytest.raises(SourceError, match="cannot be read"):
        compile_logs.read(tmp_path / "nothing.py")
    monkeypatch.setattr(compile_logs, "_MOST_BYTES", 100)
    with pytest.raises(SourceError, match="GiB of files"):
        compile_logs.read(tmp_path)


@pytest.mark.parametrize(
    "record", [b'{"rank": "\xff"}', b"[" * 100_000, b"9" * 6000, b'{"artifact": 5}', b'{"artifact": {"name": ["a"]}}']
)
def test_records_that_are_no_json_are_skipped(tmp_path: Path, record: bytes) -> None:
    log = tmp_path / "dedicated_log_torch_trace_x.log"
    log.write_bytes(b"V0101 00:00:00.0 12 a] {" + record + b"}\nV0101 00:00:00.0 12 a] " + record + b"\n\t\xff\n")
    assert compile_logs.read(tmp_path) == ()
