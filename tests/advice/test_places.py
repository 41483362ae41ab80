"""The line of code that an advice is about, and the selection of its remedy."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pytest

from perfkit_core.advice.place import Places
from perfkit_core.advice.remedies import mode, remedied
from perfkit_core.plugins.contracts import Remedy
from perfkit_core.readers.load import load
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views.user_code import innermost
from tests.support.events import device, host, trace

SITE = "/opt/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (f"{SITE}/torch/optim/sgd.py(71): step;train.py(54): <module>", "train.py:54 (<module>)"),
        ("torch/nn/functional.py(12): linear;model/net.py(7): forward;train.py(1): f", "model/net.py:7 (forward)"),
        ("<built-in method item of Tensor object at 0x7f>;train.py(9): log", "train.py:9 (log)"),
        ("threading.py(1032): _bootstrap;/usr/lib/python3.10/runpy.py(86): _run_code", None),
        ("/home/me/checkout/perfkit_core/recording/steps.py(3): call;train.py(9): log", "train.py:9 (log)"),
        ("/home/me/train.py:12 main", "/home/me/train.py:12 (main)"),
        (r"C:\env\Lib\site-packages\torch\x.py(1): f;C:\me\train.py(2): g", r"C:\me\train.py:2 (g)"),
        ("nn.Module: Linear_0;contextlib.py(81): inner", None),
        ("<frozen os>(808): getenv", None),
        ("torchvision/models/resnet.py(89): forward;train.py(3): f", "train.py:3 (f)"),
        ("transformers/trainer.py(1): step;vllm/worker.py(2): run", "in transformers/trainer.py:1 (step)"),
        (
            "torch/nn/functional.py(12): linear;torchvision/models/resnet.py(89): forward",
            "in torchvision/models/resnet.py:89 (forward)",
        ),
        (f"{SITE}/nobody_knows_it/net.py(7): forward", f"in {SITE}/nobody_knows_it/net.py:7 (forward)"),
        ("/usr/lib/python3/dist-packages/nobody_knows_it.py(7): f;run.py(1): g", "run.py:1 (g)"),
        ("_pytest/python.py(1): call;nobody_knows_it/net.py(7): forward", "nobody_knows_it/net.py:7 (forward)"),
        ("/tmp/torchinductor_me/ob/cobhw.py(132): call;train.py(7): f", "train.py:7 (f)"),
        ("tests/train.py(7): forward;torchvision/x.py(1): f", "tests/train.py:7 (forward)"),
        ("", None),
    ],
)
def test_the_innermost_frame_of_the_user(stack: str, expected: str | None) -> None:
    assert innermost(stack, "torch") == expected


def test_the_framework_is_that_of_the_recording() -> None:
    stack = "paddle/nn/layer.py(3): f;torch/own.py(4): g"
    assert innermost(stack, "paddle") == "in torch/own.py:4 (g)"
    assert innermost(stack, "torch") == "in paddle/nn/layer.py:3 (f)"


def code() -> Trace:
    """Return a recording in which two functions of train.py call operators for 30 µs and for 2 × 20 µs. One of the
    functions also launches a kernel. The profiler was started in line 30."""
    return trace(
        [
            host("train.py(30): <module>", "python", -2_000, 145_000),
            host("fw/profiler.py(7): start", "python", -1_000, 500),
            host("train.py(10): f", "python", 0, 50_000),
            host("fw/library.py(1): call", "python", 1_000, 40_000),
            host("op", "operator", 2_000, 30_000),
            host("train.py(20): g", "python", 50_000, 90_000),
            host("op", "operator", 51_000, 20_000),
            host("op", "operator", 80_000, 20_000),
            host("launch", "runtime", 85_000, 5_000, correlation=1),
            device("kernel", "kernel", 90_000, 5_000, 1),
            host("outside", "operator", 200_000, 5_000),
        ]
    )


def test_the_function_in_which_most_time_is_spent() -> None:
    found = code()
    op = np.flatnonzero(found.rows("name", "op"))
    places = Places(found)
    assert places.of(op) == "train.py:20 (def g)"
    assert places.of(op[:1]) == "train.py:10 (def f)"  # the user's line, not the library that it calls
    assert places.of(op[:2]) == "train.py:10 (def f)"


def test_only_a_part_of_the_time_can_count() -> None:
    """A gap may lie mostly in the called function, and only partly in its caller."""
    found = trace(
        [
            host("train.py(10): step", "python", 0, 90_000),
            host("fw/profiler.py(7): start", "python", 1, 5),
            host("train.py(20): wait", "python", 50_000, 10_000),
        ]
    )
    rows = np.flatnonzero(found.rows("name", "train.py(10): step", "train.py(20): wait"))
    assert Places(found).of(rows) == "train.py (step)"
    assert Places(found).of(rows, np.array([500, 9_000])) == "train.py:20 (def wait)"


def test_the_line_of_an_operator_s_own_stack_is_the_one_that_ran() -> None:
    found = trace([host("op", "operator", 0, 10, stack="fw/x.py(1): add;train.py(54): <module>")])
    assert Places(found).of(np.array([0])) == "train.py:54 (<module>)"


def test_module_code_that_began_before_the_recording_has_no_line() -> None:
    """Two cycles begin while a function and its calling module are running. The module's frame begins in line 1, so it
    gets no line."""
    rows = []
    for begin in (0, 1_000):
        rows += [
            host("train.py(30): <module>", "python", begin, 900),
            host("train.py(20): main", "python", begin + 1, 898),
            host("fw/profiler.py(7): start", "python", begin + 2, 10),
            host("op", "operator", begin + 20, 10),
            host("late.py(1): <module>", "python", begin + 100, 100),
            host("op", "operator", begin + 110, 10),
            host("waiting.py(9): <lambda>", "python", begin + 2, 800, tid=2),
            host("op", "operator", begin + 30, 10, tid=2),
            host("called.py(5): <lambda>", "python", begin + 300, 100),
            host("op", "operator", begin + 310, 10),
        ]
    found = trace(rows)
    op = np.flatnonzero(found.rows("name", "op"))
    places = [Places(found).of(op[at : at + 1]) for at in range(8)]
    assert places == ["train.py (main)", "waiting.py (<lambda>)", "late.py (<module>)", "called.py:5 (<lambda>)"] * 2


def test_torch_records_where_a_function_begins(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def add() -> None:
        torch.ones(64).add_(1)
        torch.ones(64).mul_(1)

    with torch.profiler.profile(with_stack=True) as profiler:
        add()
        torch.ones(64).sub_(1)
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    found = load(tmp_path / "trace.json")
    places = [Places(found).of(np.flatnonzero(found.rows("name", f"aten::{name}_"))) for name in ("add", "mul", "sub")]
    file, begins, own = Path(__file__).name, add.__code__.co_firstlineno, "test_torch_records_where_a_function_begins"
    assert [place.rpartition("/")[2] for place in places] == [
        f"{file}:{begins} (def add)", f"{file}:{begins} (def add)", f"{file} ({own})",
    ]  # fmt: skip


def test_a_line_of_the_user_is_preferred_to_a_line_of_a_library() -> None:
    """For most of the time, the frames are only those of libraries, as in hooks and threads."""
    found = trace(
        [
            host("fw/run.py(1): run", "python", 0, 95_000),
            host("fw/profiler.py(7): start", "python", 1, 5),
            host("train.py(10): f", "python", 10, 9_990),
            host("op", "operator", 1_000, 5_000),
            host("torchvision/x.py(1): g", "python", 10_000, 90_000),
            host("op", "operator", 11_000, 80_000),
        ]
    )
    op = np.flatnonzero(found.rows("name", "op"))
    assert Places(found).of(op) == "train.py:10 (def f)"
    assert Places(found).of(op[1:]) == "in torchvision/x.py:1 (def g)"


def test_device_work_is_where_it_was_launched() -> None:
    found = code()
    assert Places(found).of(np.flatnonzero(found.rows("kind", "kernel"))) == "train.py:20 (def g)"


def test_events_without_frames_have_no_place() -> None:
    found = code()
    assert Places(found).of(np.flatnonzero(found.rows("name", "outside"))) is None
    assert Places(found).of(np.empty(0, np.int64)) is None
    without = trace([host("op", "operator", 0, 10)])
    assert Places(without).of(np.array([0])) is None


def test_real_stacks_lead_to_the_training_script(traces: Path) -> None:
    found = load(traces / "torch" / "pairs" / "resnet50-workers0.json.gz")
    loader = np.flatnonzero(found.rows("kind", "dataloader"))
    assert Places(found).of(loader) == "resnet50_profiler_api.py:42 (<module>)"
    frames = load(traces / "torch" / "h100-bert-small.json.gz")
    place = Places(frames).of(np.flatnonzero(frames.rows("kind", "kernel")))
    assert place.startswith("moca/library/model_hub/")  # not the library transformers, which this code calls
    eager = load(traces / "torch" / "b200-eager-rank0of8.json.gz")  # only libraries and compiler-generated code
    assert Places(eager).of(np.flatnonzero(eager.rows("kind", "kernel"))).startswith(("in vllm/", "in flashinfer/"))


def test_the_caller_of_a_library_as_torch_shortens_its_files(tmp_path: Path) -> None:
    """A function of an installed package calls an operator, and a test calls the function. Torch names the files of
    both without their folders."""
    torch = pytest.importorskip("torch")
    context = click.Context(click.Command("train"))
    with torch.profiler.profile(with_stack=True) as profiler:
        for _ in range(3):
            context.invoke(torch.relu, torch.ones(64))
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    found = load(tmp_path / "trace.json")
    relu = np.flatnonzero(found.rows("name", "aten::relu"))
    assert python_frames(found, int(relu[0]))[0].startswith("click/core.py(")
    place = Places(found).of(relu)
    assert "test_places.py (" in place  # the recording began inside this function
    assert not place.startswith("in ")


def python_frames(recording: Trace, row: int) -> list[str]:
    """Return the names of the Python frames around a row that belong to files, the innermost frame first."""
    names, found = recording.codes("name"), []
    while (row := int(recording.ints("parent")[row])) >= 0:
        name = names.values[names.codes[row]]
        if ".py(" in name:
            found.append(name.partition(":")[0])
    return found


KNOWN = (
    Remedy("a", "static code", "fw.static", mode="static"),
    Remedy("a", "DataLoader(x, n={workers}, collate={})  # {unknown}", "fw.eager", "2.0", "eager", "for {workers}"),
    Remedy("b", "anywhere", "fw.any"),
    Remedy("c", "static only", "fw.c", mode="static", verify="--base x --change y"),
)  # fmt: skip


def test_the_remedy_of_the_mode_with_the_words_of_the_rule() -> None:
    found = remedied(KNOWN, "a", "eager", {"workers": "4"})
    assert (found.code, str(found.note)) == ("DataLoader(x, n=4, collate={})  # {unknown}", "for 4")
    assert (found.api, found.since) == ("fw.eager", "2.0")
    assert remedied(KNOWN, "a", "static", {}).code == "static code"
    assert remedied(KNOWN, "b", "static", {}).code == "anywhere"
    assert remedied(KNOWN, "d", "eager", {}) is None


def test_a_remedy_for_another_mode_says_so() -> None:
    found = remedied(KNOWN, "c", "eager", {})
    assert (found.code, str(found.note)) == ("static only", "This remedy is for static mode. ")
    assert found.verify == "perfkit verify --base x --change y"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("paddle/cpu-3.3.1/static_pir/cycle0.pb", "static"),
        ("paddle/versions/static_2.6.2_pir0_nofeed.pb", "static"),
        ("paddle/cpu-3.3.1/to_static/cycle0.pb", "eager"),
        ("paddle/cpu-3.3.1/mlp_medium/cycle0.json.gz", "eager"),
        ("torch/compile-triton.json.gz", "eager"),
        ("torch/pairs/resnet50-workers0.json.gz", "eager"),
    ],
)
def test_the_mode_of_real_recordings(traces: Path, file: str, expected: str) -> None:
    """The expected mode is part of the folder name of the script."""
    assert mode(load(traces / file)) == expected
