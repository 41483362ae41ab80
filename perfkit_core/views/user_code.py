"""Whose code a Python frame is: that of the user, of a library, or of the runtime. The innermost frame of the user.

Profilers may write paths without the folder of installed packages or of the script. So ``pack/file.py`` is ambiguous.
It counts as user code unless a package named ``pack`` is installed or common."""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
from enum import Enum
from pathlib import Path
from typing import Final

SEPARATOR: Final = ";"
"""Separates the frames of a stack. The innermost frame comes first."""
LIBRARIES: Final = frozenset(
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
"""Owner of a source file. ``RUNTIME``: the recorded framework, Python, perfkit, and code made by a compiler."""
_PACKAGES: Final = re.compile(r"(?:^|[/\\])(?:site|dist)-packages[/\\]")
_PYTHON: Final = re.compile(r"(?:^|[/\\])lib(?:64)?[/\\]python\d[\d.]*[/\\]|^<", re.IGNORECASE)
_COMPILED: Final = re.compile(r"[/\\]\w*inductor\w*[/\\]|[/\\]\.triton[/\\]|_compile_debug[/\\]")
"""Folders of code that compilers generate."""
_COMMAND: Final = re.compile(r"(?:^|[/\\])(?:bin|Scripts)[/\\]([^./\\]+)(?:\.exe)?$")
"""A program in a folder of programs. The user may have written it, or a package has installed it."""
_COMMANDS: Final = frozenset({"accelerate", "deepspeed", "lightning", "paddle", "perfkit", "pytest", "ray", "torchrun"})
_LAUNCHER: Final = re.compile(
    r"^<frozen |(?:^|[/\\])(?:(?:runpy|threading|contextlib)\.py$|multiprocessing[/\\](?:spawn|process|popen|fork)\w*"
    r"|(?:_pytest|pluggy|pytest)[/\\]|distributed[/\\](?:run\.py|launch\.py|(?:launch|launcher|elastic)[/\\])"
    r"|(?:accelerate[/\\]commands|deepspeed[/\\]launcher|perfkit_core)[/\\]|perfkit(?:[/\\]__main__\.py|$))"
)
"""Files that only run the user's program: the interpreter's, those of commands, test runners and perfkit."""
_FOLDER: Final = re.compile(r"[/\\]")
_PERFKIT: Final = "perfkit"
_OWN: Final = frozenset(folder.name for folder in Path(__file__).parents[2].glob(f"{_PERFKIT}_*"))
"""perfkit's packages, which may lie outside of the folder of installed packages: in a checkout."""
_AMBIGUOUS: Final = frozenset(
    {"benchmark", "benchmarks", "docs", "examples", "models", "scripts", "src", "test", "tests", "tools", "utils"}
)
"""Common folder names in projects. They count as user code, even if an installed package has the same name."""
LINE: Final = re.compile(r"^(?P<file>[^<].*?)(?:\((?P<line>\d+)\)|:(?P<line2>\d+))(?:: ?| |$)(?P<function>.*)$")
IN: Final = "in "
"""Prefix of a line of a library."""


def launches(file: str) -> bool:
    """Return whether the code of a file only runs the user's program, so that it is no place of the program."""
    command = _COMMAND.search(file)
    return (command is not None and command[1] in _COMMANDS) or bool(_LAUNCHER.search(file))


@functools.cache
def owner_of(file: str, framework: str | None) -> Owner:
    """Return whether a file is code of the user, a library, or the runtime (see :data:`Owner`). ``framework`` is the
    package name of the recorded framework, for example ``torch``."""
    if launches(file):
        return Owner.RUNTIME
    installed = list(_PACKAGES.finditer(file))
    if not installed and _COMMAND.search(file):
        return Owner.USER
    if not installed and (_PYTHON.search(file) or _COMPILED.search(file)):
        return Owner.RUNTIME
    package, *below = _FOLDER.split(inside_packages(file))
    if not _OWN.isdisjoint(below):
        return Owner.RUNTIME
    package = package.removesuffix(".py")
    if package == framework or package.startswith(_PERFKIT) or (not installed and package in sys.stdlib_module_names):
        return Owner.RUNTIME
    return Owner.LIBRARY if installed or package in LIBRARIES or _is_installed(package) else Owner.USER


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


def place_of(frame: re.Match[str], line: bool = True) -> str:
    """Return a frame that :data:`LINE` matches as ``file:line (function)``, or as ``file (function)``."""
    function = frame["function"].strip()
    text = f"{frame['file']}:{frame['line'] or frame['line2']}" if line else frame["file"]
    return f"{text} ({function})" if function else text


def inside_packages(file: str) -> str:
    """Return the path of a file below the folder of installed packages, or the whole path."""
    installed = list(_PACKAGES.finditer(file))
    return file[installed[-1].end() :] if installed else file


def innermost(stack: str, framework: str | None) -> str | None:
    """Return the innermost frame of user code as ``file:line (function)``. If there is none, return the innermost frame
    of a library as ``in file:line (function)``, else None. ``stack`` begins with the innermost frame."""
    library = None
    for frame in stack.split(SEPARATOR):
        match = LINE.match(frame.strip())
        owner = owner_of(match["file"], framework) if match else Owner.RUNTIME
        if match is None or owner is Owner.RUNTIME or (owner is Owner.LIBRARY and library is not None):
            continue
        if owner is Owner.USER:
            return place_of(match)
        library = f"{IN}{place_of(match)}"
    return library
