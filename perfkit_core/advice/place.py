"""Which line of the user's code is to be changed? The innermost frame that is in no installed package.

A frame in the stack of an operator has the line that ran. One that was recorded as an event has that where its function
begins; of one that ran already when the recording began no line is known.

Whose file is a recorded frame in: the user's, a library's, or that of the framework and Python itself?

Profilers write the files of installed packages in full, or without the folder of ``sys.path`` in which they lie. That
is the folder of all packages as well as that of the script, so that ``pack/file.py`` may be either: the name of the
package tells.

Which packages are libraries, wherever a recording is read? Those that trainings commonly call.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from enum import Enum
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from perfkit_core.algorithms import nesting
from perfkit_core.algorithms.arrays import NO_ROW, IntArray
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


Owner = Enum("Owner", ["USER", "LIBRARY", "RUNTIME"])
"""``RUNTIME``: the framework of the recording, code that its compiler made, Python, and perfkit."""
_PACKAGES: Final = re.compile(r"(?:^|[/\\])(?:site|dist)-packages[/\\]")
_PYTHON: Final = re.compile(r"(?:^|[/\\])lib(?:64)?[/\\]python\d[\d.]*[/\\]|^<", re.IGNORECASE)
_MADE: Final = re.compile(r"[/\\]\w*inductor\w*[/\\]|[/\\]\.triton[/\\]|_compile_debug[/\\]")
"""Folders in which compilers write the code that they make."""
_SEPARATOR: Final = re.compile(r"[/\\]")
_OWN: Final = "perfkit"
_ANYBODYS: Final = frozenset(
    {"benchmark", "benchmarks", "docs", "examples", "models", "scripts", "src", "test", "tests", "tools", "utils"}
)
"""Names that careless distributions install, too."""


def owner_of(file: str, framework: str | None) -> Owner:
    """``framework`` is the package of the framework that was recorded."""
    installed = list(_PACKAGES.finditer(file))
    if not installed and (_PYTHON.search(file) or _MADE.search(file)):
        return Owner.RUNTIME
    inside = file[installed[-1].end() :] if installed else file
    package = _SEPARATOR.split(inside)[0].removesuffix(".py")
    if package == framework or package.startswith(_OWN) or (not installed and package in sys.stdlib_module_names):
        return Owner.RUNTIME
    return Owner.LIBRARY if installed or package in KNOWN or _is_installed(package) else Owner.USER


@functools.cache
def _is_installed(package: str) -> bool:
    """Whether it is among the packages that are installed here; nothing is imported."""
    if not package.isidentifier() or package in _ANYBODYS:
        return False
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return False
    places = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec else []
    return any(_PACKAGES.search(f"{place}/") for place in places)


_LINE: Final = re.compile(r"^(?P<file>[^<].*?)(?:\((?P<line>\d+)\)|:(?P<line2>\d+))(?:: ?| |$)(?P<function>.*)$")
_IN: Final = "in "
"""Before a line that is a library's."""
_MODULE: Final = "<module>"
"""What runs at the level of a module has this for a function."""


class Places:
    """Lines of code of the rows of a trace; the stacks are read once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def of(self, rows: IntArray, time_ns: IntArray | None = None) -> str | None:
        """``file:line (function)`` in which the rows (device work: its launches) spend most time; ``file:line (def
        function)`` where only the line is known in which the function begins, ``file (function)`` where none is;
        ``in …`` with those of a library where none of the user was recorded, None where neither was. ``time_ns``: what
        of the time of each row counts (None: its duration, of device work that of its launch)."""
        rows = self._on_host(rows)
        spent = self._trace.ints("dur_ns")[rows] if time_ns is None else time_ns
        codes, names = self._lines.codes[rows], self._lines.categories
        known = codes >= 0
        if not known.any():
            return None
        time = np.bincount(codes[known], spent[known] + 1, len(names))
        users = np.array([not name.startswith(_IN) for name in names], np.bool_)
        return str(names[int(np.where(users, time, 0).argmax() if time[users].any() else time.argmax())])

    def _on_host(self, rows: IntArray) -> IntArray:
        launched_by = self._trace.ints("launched_by")[rows]
        return np.where(launched_by != NO_ROW, launched_by, rows)

    @cached_property
    def _lines(self) -> pd.Categorical:
        """The line of each row of the trace."""
        return _of_stacks(self._trace) if self._trace.known("stack") else _of_frames(self._trace)


def _of_stacks(trace: Trace) -> pd.Categorical:
    """From the stacks that operators hold."""
    found = as_recorded(trace, np.arange(len(trace)))
    lines = [innermost(text, trace.meta.framework) for text in found.categories]
    return _distinct(lines, found.codes)


def _of_frames(trace: Trace) -> pd.Categorical:
    """From the frames that are events."""
    names, frame, parent = trace.codes("name"), is_frame(trace), trace.ints("parent")
    matches = [_LINE.match(name) for name in names.values]
    owners = [owner_of(found["file"], trace.meta.framework) if found else Owner.RUNTIME for found in matches]
    users, libraries = (
        nesting.nearest_on_path(parent, frame & names.lookup(np.array([one is who for one in owners], np.bool_), False))
        for who in (Owner.USER, Owner.LIBRARY)
    )
    around = np.where(users != NO_ROW, users, libraries)
    before = running_before(trace)
    lines = [
        None if found is None else ("" if owner is Owner.USER else _IN) + told(found)
        for told in (_beginning, _file)
        for found, owner in zip(matches, owners, strict=True)
    ]
    line = names.codes + np.where(before, len(matches), 0)
    return _distinct(lines, np.append(line, -1)[around])


def _distinct(lines: list[str | None], codes: IntArray) -> pd.Categorical:
    """The lines that ``codes`` index (-1: none), each once."""
    distinct = list(dict.fromkeys(line for line in lines if line is not None))
    position = {line: code for code, line in enumerate(distinct)}
    code = np.array([-1 if line is None else position[line] for line in lines] + [-1], np.int64)
    return pd.Categorical.from_codes(code[codes], categories=pd.Index(distinct, dtype=object))


def innermost(stack: str, framework: str | None) -> str | None:
    """``file:line (function)`` of the innermost frame of the user; where there is none, ``in file:line (function)`` of
    the innermost frame of a library; ``stack`` has the innermost frame first."""
    library = None
    for frame in stack.split(SEPARATOR):
        found = _LINE.match(frame.strip())
        owner = owner_of(found["file"], framework) if found else Owner.RUNTIME
        if found and owner is Owner.USER:
            return _line(found)
        if found and owner is Owner.LIBRARY and library is None:
            library = f"{_IN}{_line(found)}"
    return library


def _line(found: re.Match[str]) -> str:
    """The line that ran."""
    function, line = found["function"].strip(), f"{found['file']}:{found['line'] or found['line2']}"
    return f"{line} ({function})" if function else line


def _beginning(found: re.Match[str]) -> str:
    """The line where a function begins; that of a module tells nothing."""
    function = found["function"].strip()
    if function == _MODULE:
        return _file(found)
    kind = "def " if function.isidentifier() else ""  # or <lambda>, which has few lines
    return f"{found['file']}:{found['line'] or found['line2']} ({kind}{function})"


def _file(found: re.Match[str]) -> str:
    """Without a line."""
    return f"{found['file']} ({found['function'].strip()})"
