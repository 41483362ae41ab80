"""Recordings of torch on Ascend NPUs: the folders and databases of torch_npu's profiler. torch_npu is not needed."""

from __future__ import annotations

from pathlib import Path

from perfkit_core.readers.ascend.rank_folder import RankFolder, files
from perfkit_core.readers.ascend.recording import read_database, sniff
from perfkit_core.trace.model.trace import Trace
from perfkit_torch import dialect
from perfkit_torch.operator_names import operator_name

__all__ = ["files", "peek", "read", "sniff"]


def read(path: Path, partial: bool = False) -> Trace:
    """Return the Trace of a database. Raises SourceError."""
    labels = dialect.TorchDialect().label
    return read_database(path, partial, "torch", labels, dialect.copy_kind, operator_name)


def peek(path: Path) -> int | None:
    """Return the rank that the folder of a database says, or None."""
    folder = RankFolder.around(path, partial=True)
    return folder.rank if folder else None
