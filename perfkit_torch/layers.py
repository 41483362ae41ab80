"""The layers of a torch model: their paths and parameters, and what a run of the model shows of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import is_lazy
from torch.utils.flop_counter import FlopCounterMode

from perfkit_core.layers import layer_calls
from perfkit_core.layers.architecture import Layer, Parameter, path_parents
from perfkit_core.layers.layer_calls import CallLog, Signature
from perfkit_torch import layer_flops, layer_hooks

_WRAPPERS: Final = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Parts of a path that torch puts in when it wraps a module."""
_PARALLEL: Final = ("DataParallel", "DistributedDataParallel")

Named = tuple[str, nn.Module]


def named(model: nn.Module) -> Iterator[Named]:
    """Path and module, the model first. What is wrapped stands for its wrapper; what occurs twice comes once."""
    found: dict[str, nn.Module] = {}
    for path, module in model.named_modules():
        parts = [part for part in path.split(".") if part not in _WRAPPERS] if path else []
        if type(model).__name__ in _PARALLEL and parts[:1] == ["module"]:
            parts = parts[1:]
        found[".".join(parts)] = module
    yield from found.items()


def described(found: Sequence[Named], called: Mapping[str, Mapping[str, Any]]) -> Iterator[Layer]:
    """A Layer for each; ``called``: path → the fields that its calls tell."""
    owners: dict[int, str] = {}
    for path, module in found:
        parameters = tuple(_parameters(path, module, owners))
        device = next((str(p.device) for p in module._parameters.values() if p is not None), None)
        seen = called.get(path, {})
        yield Layer(path=path, class_name=type(module).__name__, parameters=parameters, device=device, **seen)


def _parameters(path: str, module: nn.Module, owners: dict[int, str]) -> Iterator[Parameter]:
    for name, tensor in module._parameters.items():
        if tensor is None:
            continue
        full = f"{path}.{name}" if path else name
        owner = owners.setdefault(id(tensor), full)
        lazy = is_lazy(tensor)
        yield Parameter(
            name=name,
            shape=None if lazy else tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            bytes=None if lazy else tensor.numel() * tensor.element_size(),
            trainable=tensor.requires_grad,
            tied_to=None if owner == full else owner,
        )


def seen(module: nn.Module, calls: Counter[Signature]) -> dict[str, Any]:
    """What counted calls tell of a layer; FLOPs by formula."""
    return layer_calls.seen(calls, lambda signature: layer_flops.of_call(module, signature))


def run(
    model: nn.Module, found: Sequence[Named], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """One forward pass without gradients, in eval mode; per path the fields of a Layer, FLOPs by torch's counter."""
    log = CallLog()
    counter = FlopCounterMode(display=False)
    with _eval(model), _watched(found, log), torch.no_grad(), counter:
        model(*args, **kwargs)
    calls = log.take()
    own = _own_flops(model, found, counter, set(calls))
    return {
        path: seen(module, calls[path]) | {"flops": own[path], "backward_flops": None}
        for path, module in found
        if path in calls
    }


@contextmanager
def _eval(model: nn.Module) -> Iterator[None]:
    """Eval mode, and attention as products that the counter knows; every module gets its own mode back."""
    training = [(module, module.training) for module in model.modules()]
    backend = getattr(torch.backends, "mha", None)
    fast = backend.get_fastpath_enabled() if backend else None
    try:
        model.eval()
        if backend:
            backend.set_fastpath_enabled(False)
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        if backend:
            backend.set_fastpath_enabled(fast)
        for module, mode in training:
            module.training = mode


@contextmanager
def _watched(found: Sequence[Named], log: CallLog) -> Iterator[None]:
    """Count calls by path."""
    with ExitStack() as hooks:
        for path, module in found:
            handle = module.register_forward_hook(_counting(path, log), with_kwargs=True)
            hooks.callback(handle.remove)
        yield


def _counting(path: str, log: CallLog) -> Any:
    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        given, returned = (layer_calls.tensors(value, torch.Tensor) for value in ((args, kwargs), output))
        log.add(path, layer_hooks.signature(module, given, returned))

    return after


def _own_flops(model: nn.Module, found: Sequence[Named], counter: FlopCounterMode, called: set[str]) -> dict[str, int]:
    """FLOPs of each layer without its children, from sums with them, which the counter has of what was called."""
    names = {id(module): path for path, module in model.named_modules()}
    counts = counter.get_flop_counts()
    model_name = type(model).__name__
    total = []
    for _, module in found:
        path = names[id(module)]
        total.append(int(sum(counts.get(f"{model_name}.{path}" if path else model_name, {}).values())))
    parents = path_parents([path for path, _ in found]).tolist()
    own = [0] * len(total)
    for child in reversed(range(len(total))):  # children come after their parents
        total[child] = total[child] if found[child][0] in called else -own[child]
        own[child] += total[child]
        if parents[child] >= 0:
            own[parents[child]] -= total[child]
    return {path: value for (path, _), value in zip(found, own, strict=True)}
