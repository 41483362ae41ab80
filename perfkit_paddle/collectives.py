"""``annotate_collectives`` labels the collectives of ``paddle.distributed`` while a profiler records. The label
contains the name of the collective, its group and its message size. Paddle itself records only the kernels of a
collective. If gloo executes the collective, Paddle records nothing."""

from __future__ import annotations

import functools
import inspect
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, Final

from perfkit_core.base.system.failures import logger, raised_by_signal
from perfkit_core.trace.assembly.labels import collective_label
from perfkit_core.trace.model.collective import DEVICE, HOST, Collective
from perfkit_paddle import framework

_FUNCTIONS: Final = {
    "all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "reduce": "reduce",
    "broadcast": "broadcast", "scatter": "scatter", "gather": "gather", "alltoall": "all_to_all",
    "alltoall_single": "all_to_all", "all_to_all": "all_to_all", "barrier": "barrier",
    "communication.stream.send": "send", "communication.stream.recv": "recv",
}  # fmt: skip
"""Attributes of ``paddle.distributed``. All its sends and receives, such as isend, call those in ``stream``."""
_TENSOR_IS_PART: Final = frozenset({"all_gather", "reduce_scatter", "scatter", "gather"})
"""Collectives whose argument ``tensor`` contains only one rank's part of the message."""
_TENSORS: Final = ("tensor", "in_tensor_list", "in_tensor")
_RESULTS: Final = ("out_tensor_list", "out_tensor")
_PEERS: Final = {"send": "dst", "recv": "src"}
_ON_HOST: Final = "GLOO"


@contextmanager
def annotate_collectives() -> Iterator[None]:
    """Label the collectives that are called as ``paddle.distributed.NAME`` in the ``with`` block, while a profiler
    records. Errors while labelling are logged. Raises CaptureError if Paddle cannot be imported.

    These calls are not labelled:

    - Calls from C++, such as those for the gradients of ``DataParallel``.
    - Calls of a function that was imported by name before the block, other than sends and receives."""
    distributed = framework.paddle().distributed
    originals = []
    for path, name in _FUNCTIONS.items():
        *modules, attribute = path.split(".")
        owner = functools.reduce(getattr, modules, distributed)
        if hasattr(owner, attribute):
            originals.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, _labelled(getattr(owner, attribute), name))
    try:
        yield
    finally:
        for owner, attribute, original in originals:
            setattr(owner, attribute, original)


def _labelled(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    from paddle.profiler import RecordEvent, utils

    signature = inspect.signature(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not utils.in_profiler_mode():
            return original(*args, **kwargs)
        event = None
        try:
            event = RecordEvent(_label(name, signature.bind(*args, **kwargs).arguments))
            event.begin()
        except Exception as error:
            if raised_by_signal(error):
                raise
            logger.debug("perfkit: a collective could not be labelled", exc_info=True)
        try:
            return original(*args, **kwargs)
        finally:
            if event is not None:
                event.end()

    return call


def _label(name: str, arguments: dict[str, Any]) -> str:
    from paddle import distributed

    group = arguments.get("group") or distributed.get_group(0)
    blocking = bool(arguments.get("sync_op", True))
    on_host = blocking and str(distributed.get_backend(arguments.get("group"))).upper() == _ON_HOST
    parts = _tensors(arguments, _TENSORS)
    results = _tensors(arguments, _RESULTS) if name == "all_to_all" else []
    shaped = results and all(part.ndim for part in results)
    peer = arguments.get(_PEERS.get(name, ""))
    elements = sum(prod(part.shape) for part in parts) * (group.nranks if name in _TENSOR_IS_PART else 1)
    return collective_label(
        Collective(
            name,
            group=str(group.id),
            members=f"{zlib.crc32(str(list(group.ranks)).encode()):08x}",
            group_size=int(group.nranks),
            elements=elements if parts else None,
            dtype=str(parts[0].dtype).removeprefix("paddle.") if parts else None,
            on=HOST if on_host else DEVICE,
            peer=None if peer is None else int(peer),
            received=sum(prod(part.shape) for part in results) if results else None,
            received_rows=sum(part.shape[0] for part in results) if shaped else None,
        )
    )


def _tensors(arguments: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    """Return the tensors of the first of the named arguments that was given."""
    tensor = next((arguments[name] for name in names if name in arguments), None)
    return list(tensor) if isinstance(tensor, (list, tuple)) else [] if tensor is None else [tensor]
