"""Find the line of the user's code that advice is about: the innermost frame that belongs to no installed package.

For a frame in the stack of an operator, the line is the one that ran. For a frame that was recorded as an event, the
line is the first line of its function. If the function began to run before the recording, no line is known.

Profilers may write paths without the folder of installed packages or of the script. So ``pack/file.py`` is ambiguous.
It counts as user code unless a package named ``pack`` is installed or common."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from enum import Enum
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import arrays, nesting
from perfkit_core.model.trace import Trace
from perfkit_core.views.code import running_before
from perfkit_core.views.grouping import SEPARATOR, as_recorded, is_frame

KNOWN: Final = frozenset(
    {
        "accelerate", "aiohttp", "aiter", "albumentations", "apex", "av", "bitsandbytes", "colossalai", "composer",
        "cv2", "dask", "datasets", "deep_ep", "deep_gemm", "deepspeed", "detectron2", "dgl", "diffusers", "einops",
        "fairscale", "fastai", "fbgemm_gpu", "fla", "flash_attn", "flashinfer", "fsspec", "functorch", "gymnasium",
        "h5py", "huggingface_hub", "hydra", "ignite", "imageio", "jax", "joblib", "keras", "kornia", "liger_kernel",
        "lightning", "lightning_fabric", "matplotlib", "mlflow", "mmcv", "mmengine", "monai", "multiprocess",
        "networkx", "nltk", "numba", "numpy", "omegaconf", "onnx", "onnxruntime", "opt_einsum", "optimum", "paddle",
        "paddleformers", "paddlenlp", "paddlex", "pandas", "peft", "PIL", "polars", "psutil", "pyarrow", "pydantic",
        "pytest", "pytorch_lightning", "ray", "requests", "rich", "safetensors", "scipy", "sentence_transformers",
        "sentencepiece", "sgl_kernel", "sglang", "skimage", "sklearn", "spacy", "streaming", "sympy", "tensorboard",
        "tensordict", "tensorflow", "tiktoken", "timm", "tokenizers", "torch", "torch_geometric", "torch_npu",
        "torch_scatter", "torch_sparse", "torch_xla", "torchao", "torchaudio", "torchdata", "torchmetrics", "torchrec",
        "torchtext", "torchtitan", "torchtune", "torchvision", "tqdm", "transformer_engine", "transformers", "triton",
        "trl", "unsloth", "uvicorn", "visualdl", "vllm", "wandb", "webdataset", "xformers", "xgrammar", "yaml", "zmq",
    }
)  # fmt: skip
"""Packages that training scripts often use. They count as libraries even if they are not installed."""

Owner = Enum("Owner", ["USER", "LIBRARY", "RUNTIME"])
"""Whose code a file is. ``RUNTIME`` stands for the recorded framework, Python, perfkit, and code made by a compiler."""
_PACKAGES: Final = re.compile(r"(?:^|[/\\])(?:site|dist)-packages[/\\]")
_PYTHON: Final = re.compile(r"(?:^|[/\\])lib(?:64)?[/\\]python\d[\d.]*[/\\]|^<", re.IGNORECASE)
_COMPILED: Final = re.compile(r"[/\\]\w*inductor\w*[/\\]|[/\\]\.triton[/\\]|_compile_debug[/\\]")
"""Folders of code that compilers generate."""
_SEPARATOR: Final = re.compile(r"[/\\]")
_PERFKIT: Final = "perfkit"
_AMBIGUOUS: Final = frozenset(
    {"benchmark", "benchmarks", "docs", "examples", "models", "scripts", "src", "test", "tests", "tools", "utils"}
)
"""Common folder names in projects. They count as user code, even if an installed package has the same name."""
_LINE: Final = re.compile(r"^(?P<file>[^<].*?)(?:\((?P<line>\d+)\)|:(?P<line2>\d+))(?:: ?| |$)(?P<function>.*)$")
_IN: Final = "in "
_MODULE: Final = "<module>"


def owner_of(file: str, framework: str | None) -> Owner:
    """Return whether a file is code of the user, a library, or the runtime (see :data:`Owner`). ``framework`` is the
    package name of the recorded framework, for example ``torch``."""
    installed = list(_PACKAGES.finditer(file))
    if not installed and (_PYTHON.search(file) or _COMPILED.search(file)):
        return Owner.RUNTIME
    inside = file[installed[-1].end() :] if installed else file
    package = _SEPARATOR.split(inside)[0].removesuffix(".py")
    if package == framework or package.startswith(_PERFKIT) or (not installed and package in sys.stdlib_module_names):
        return Owner.RUNTIME
    return Owner.LIBRARY if installed or package in KNOWN or _is_installed(package) else Owner.USER


@functools.cache
def _is_installed(package: str) -> bool:
    if not package.isidentifier() or package in _AMBIGUOUS:
        return False
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return False
    folders = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec else []
    return any(_PACKAGES.search(f"{folder}/") for folder in folders)


class Places:
    """Lines of code for the rows of a trace. The stacks are read once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def of(self, rows: arrays.IntArray, time_ns: arrays.IntArray | None = None) -> str | None:
        """Return the place in which the rows spend most of their time; None if no frames were recorded.

        Device work counts at the place of its launch. ``time_ns`` is the time of each row. By default, it is the
        duration of the row, or of its launch for device work. Forms of the place:

        - ``file:line (function)``: the line that ran
        - ``file:line (def function)``: the first line of the function
        - ``file (function)``: no line is known
        - ``in file:line (function)``: only frames of libraries were recorded"""
        launched_by = self._trace.ints("launched_by")[rows]
        rows = np.where(launched_by != arrays.NO_ROW, launched_by, rows)
        spent = self._trace.ints("dur_ns")[rows] if time_ns is None else time_ns
        codes, names = self._lines.codes[rows], self._lines.categories
        known = codes >= 0
        if not known.any():
            return None
        time = np.bincount(codes[known], spent[known] + 1, len(names))
        users = np.array([not name.startswith(_IN) for name in names], np.bool_)
        return str(names[int(np.where(users, time, 0).argmax() if time[users].any() else time.argmax())])

    @functools.cached_property
    def _lines(self) -> pd.Categorical:
        trace, framework = self._trace, self._trace.meta.framework
        if trace.known("stack"):
            recorded = as_recorded(trace, np.arange(len(trace)))
            return _distinct([innermost(text, framework) for text in recorded.categories], recorded.codes)
        names, frame, parent = trace.codes("name"), is_frame(trace), trace.ints("parent")
        matches = [_LINE.match(name) for name in names.values]
        owners = [owner_of(match["file"], framework) if match else Owner.RUNTIME for match in matches]
        users, libraries = (
            nesting.nearest_on_path(
                parent, frame & names.lookup(np.array([one is who for one in owners], np.bool_), False)
            )
            for who in (Owner.USER, Owner.LIBRARY)
        )
        around = np.where(users != arrays.NO_ROW, users, libraries)
        # two texts for each name: first with the line where the function begins, then without a line
        lines: list[str | None] = []
        for with_line in (True, False):
            for match, owner in zip(matches, owners, strict=True):
                if match is None:
                    lines.append(None)
                    continue
                function, place = match["function"].strip(), match["file"]
                if with_line and function != _MODULE:  # the first line of a module says nothing
                    kind = "def " if function.isidentifier() else ""  # a <lambda> usually has one line
                    place, function = f"{place}:{match['line'] or match['line2']}", f"{kind}{function}"
                lines.append(f"{'' if owner is Owner.USER else _IN}{place} ({function})")
        line = names.codes + np.where(running_before(trace), len(matches), 0)
        return _distinct(lines, np.append(line, -1)[around])


def _distinct(lines: list[str | None], codes: arrays.IntArray) -> pd.Categorical:
    distinct = list(dict.fromkeys(line for line in lines if line is not None))
    position = {line: code for code, line in enumerate(distinct)}
    code = np.array([-1 if line is None else position[line] for line in lines] + [-1], np.int64)
    return pd.Categorical.from_codes(code[codes], categories=pd.Index(distinct, dtype=object))


def innermost(stack: str, framework: str | None) -> str | None:
    """Return the innermost frame of user code as ``file:line (function)``. If there is none, return the innermost frame
    of a library as ``in file:line (function)``, else None. ``stack`` begins with the innermost frame."""
    library = None
    for frame in stack.split(SEPARATOR):
        match = _LINE.match(frame.strip())
        owner = owner_of(match["file"], framework) if match else Owner.RUNTIME
        if match is None or owner is Owner.RUNTIME or (owner is Owner.LIBRARY and library is not None):
            continue
        function, line = match["function"].strip(), f"{match['file']}:{match['line'] or match['line2']}"
        text = f"{line} ({function})" if function else line
        if owner is Owner.USER:
            return text
        library = f"{_IN}{text}"
    return library
