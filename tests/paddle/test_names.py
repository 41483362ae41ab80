"""Mapping of Paddle's names to perfkit's vocabulary, and the plugin without Paddle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perfkit_core.base.operators.names import is_canonical, native_names
from perfkit_core.plugins.manager import get_plugins
from perfkit_paddle.names import EVENT_TYPES, MEMORY_TYPES, copy_kind, is_known, label, place_device
from perfkit_paddle.operator_names import operator_name
from perfkit_paddle.pb_source import read_pb


@pytest.mark.parametrize(
    ("native", "canonical"),
    [
        ("conv2d dygraph", "conv"),
        ("pd_op.conv2d", "conv"),
        ("conv2d", "conv"),
        ("Global_Conv2dGradNodeFinal", "conv_grad"),
        ("Conv2dGradNodeFinal", "conv_grad"),
        ("pd_op.conv2d_grad", "conv_grad"),
        ("Global_GradNodeAccumulation", "accumulate_grad"),
        ("GradNodeAccumulation", "accumulate_grad"),
        ("pd_op.relu_grad_", "relu_grad"),
        ("Global_CrossEntropyWithSoftmaxGradNode", "cross_entropy_grad"),
        ("adamw_ dygraph", "optimizer_update"),
        ("momentum_ dygraph", "optimizer_update"),
        ("elementwise_add", "add"),
        ("reduce_mean_grad", "mean_grad"),
        ("c_allreduce_sum", "all_reduce"),
        ("c_scatter", "collective_call"),
        ("scatter dygraph", "scatter"),
        ("pool2d dygraph", "pool"),
        ("if_instruction", "control_flow"),
        ("Global_GradNodePyLayer_Cus", "custom_function_grad"),
        ("Global_Dy2StGradNode", "compiled_region_grad"),
        ("ncclAllReduce", "all_reduce"),
        ("sparse_relu_grad", "relu_grad"),
        ("matmul_v2_grad_grad", "matmul_grad"),
        ("sgd_dense_param_sparse_grad", "optimizer_update"),
        ("relu_coo", "relu"),
        ("pd_op.fetch", "fetch"),
        ("scale dygraph", "multiply"),
        ("update_loss_scaling_", "update_loss_scale"),
        ("masked_fill dygraph", "where"),
        ("no_such_operator", None),
        ("", None),
    ],
)
def test_operators_have_canonical_names(native: str, canonical: str | None) -> None:
    """An operator has the same canonical name in dygraph mode, PIR, old static graphs and all versions."""
    assert operator_name(native) == canonical


def test_the_table_maps_into_the_vocabulary() -> None:
    """Every canonical name is in the vocabulary that all frameworks share."""
    assert {value for value in native_names("perfkit_paddle").names.values() if not is_canonical(value)} == set()


def test_all_operators_of_real_runs_have_a_name(paddle_traces: Path) -> None:
    """All operators of the recorded workloads, including control flow and user code, have a canonical name."""
    unknown: set[str] = set()
    for path in [*paddle_traces.glob("cpu-3.3.1/*/*.pb*"), *paddle_traces.glob("versions/*.pb")]:
        frame = read_pb(path).to_pandas()
        operators = frame[frame["kind"] == "operator"]
        unknown |= set(operators[operators["op_name"].isna()]["name"])
    assert unknown == set()


def test_every_event_type_has_a_meaning() -> None:
    """The event types of all versions are known, and phases apply to their subtree."""
    assert all(is_known(name) for name in (*EVENT_TYPES, *MEMORY_TYPES, "MluRuntime"))
    assert not is_known("Newest")
    assert {label(name, "x").phase for name in EVENT_TYPES} == {None, "dataloader", "forward", "backward", "optimizer"}
    assert label("ProfileStep", "ProfileStep#17").step == 17
    assert label("CudaRuntime", "cudaStreamSynchronize_v3020").kind == "sync"
    assert label("CudaRuntime", "cudaLaunchKernel_v7000").kind == "runtime"


def test_copies_and_places() -> None:
    """The direction and the kind of host memory are read if recorded, and devices have the same names as in other
    frameworks."""
    assert copy_kind("MEMCPY_HtoD", "MEMCPY_HtoD", "Pageable", "Device") == "HtoD pageable"
    assert copy_kind("MEMCPY_DtoH", None, "Device", "Pinned") == "DtoH pinned"
    assert copy_kind("copy") is None
    assert [place_device(p) for p in ("Place(cpu)", "Place(gpu:1)", "Place(gpu_pinned)", "Place(xpu:0)", "?")] == [
        "cpu", "cuda:1", "cpu", "xpu:0", "cpu"]  # fmt: skip


def test_the_plugin_has_all_its_hooks() -> None:
    """The plugin is loaded through its entry point without an error, and has all its hooks."""
    plugins = get_plugins()
    assert plugins.listed["paddle"].error is None
    assert {"paddle-json", "paddle-pb"} <= {source.name for source in plugins.sources()}
    assert "paddle" in plugins.recorders()
    assert plugins.framework("paddle").operator_names() is operator_name


WITHOUT_PADDLE = """
import sys
sys.modules["paddle"] = None
from pathlib import Path
from perfkit_core.errors import CaptureError
import perfkit_paddle
from perfkit_paddle import plugin
recorder = plugin.perfkit_frameworks()[0].recorder()
for action in (lambda folder: recorder.start(folder, None, {}), lambda folder: perfkit_paddle.trace_handler(folder)):
    try:
        action(Path("unused"))
    except (CaptureError, ImportError) as error:
        assert 'pip install "perfkit[paddle]"' in str(error), error
    else:
        raise AssertionError
"""


def test_everything_imports_without_paddle() -> None:
    """Files can be read if Paddle is not installed, and an attempt to record names the package to install."""
    subprocess.run([sys.executable, "-c", WITHOUT_PADDLE], check=True)
