"""The layers of a torch model: their paths and parameters, and what a run of the model shows of them.

FLOPs of one call of a torch layer, by its class: what the core's formulas need, from the module's attributes.

``annotate`` and ``describe``: the layers of a torch model, in what a profiler records and on their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.parameter import is_lazy
from torch.utils.flop_counter import FlopCounterMode

from perfkit_core.model import architecture
from perfkit_core.model.architecture import (
    Architecture,
    CallLog,
    Flops,
    Layer,
    Parameter,
    Signature,
    path_parents,
    products,
)
from perfkit_core.recording import annotation
from perfkit_core.recording.annotation import Annotation, Framework
from perfkit_torch import layer_hooks
from perfkit_torch import layer_hooks as layer_watch

_GATES: Final = {"LSTM": 4, "GRU": 3}


def of_call(module: nn.Module, call: Signature) -> Flops:
    """Own FLOPs. Torch's layers without a matrix product have none; what a user's module computes itself is unknown."""
    formula = next((made for cls, made in _FORMULAS if isinstance(module, cls)), None)
    if formula is not None:
        return formula(module, call)
    return Flops(0, 0) if type(module).__module__.startswith("torch.nn.modules.") else Flops(None, None)


def _linear(module: Any, call: Signature) -> Flops:
    return products(call, annotation.linear(call.inputs[0].shape, module.out_features))


def _bilinear(module: Any, call: Signature) -> Flops:
    return Flops(annotation.bilinear(call.inputs[0].shape, module.in2_features, module.out_features), None)


def _convolution(module: Any, call: Signature) -> Flops:
    shape, channels = call.outputs[0].shape, module.in_channels // module.groups
    return products(call, annotation.convolution(shape, channels, module.kernel_size))


def _transposed(module: Any, call: Signature) -> Flops:
    shape, channels = call.inputs[0].shape, module.out_channels // module.groups
    return products(call, annotation.convolution(shape, channels, module.kernel_size))


def _attention(module: Any, call: Signature) -> Flops:
    """Projections of query, key and value, scores, weighted sum and the projection of the result."""
    query, key, value = (one.shape for one in (call.inputs * 3 if len(call.inputs) == 1 else call.inputs)[:3])
    length = key[-2] if module.batch_first or len(key) == 2 else key[0]
    width = module.embed_dim
    projections = sum(annotation.linear(shape, width) for shape in (query, key, value, query))
    return products(call, projections, annotation.attention(query, length))


def _recurrent(module: Any, call: Signature) -> Flops:
    shape = call.inputs[0].shape
    tokens = shape[0] if len(shape) == 2 else shape[0] * shape[1]
    gates = _GATES.get(module.mode, 1)
    hidden, directions = module.hidden_size, 2 if module.bidirectional else 1
    output = module.proj_size or hidden
    forward = annotation.recurrent(tokens, gates, module.input_size, hidden, module.num_layers, directions, output)
    return Flops(forward, 2 * forward if call.input_gradient and call.weight_gradient else None)


_FORMULAS: Final[tuple[tuple[type, Callable[[Any, Signature], Flops]], ...]] = (
    (nn.Linear, _linear),
    (nn.Bilinear, _bilinear),
    (_ConvTransposeNd, _transposed),
    (_ConvNd, _convolution),
    (nn.MultiheadAttention, _attention),
    (nn.RNNBase, _recurrent),
)


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


def described_layers(found: Sequence[Named], called: Mapping[str, Mapping[str, Any]]) -> Iterator[Layer]:
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
    return architecture.seen(calls, lambda signature: of_call(module, signature))


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
        given, returned = (architecture.tensors(value, torch.Tensor) for value in ((args, kwargs), output))
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


__all__ = ["annotate", "describe"]

FRAMEWORK: Final = Framework(
    name="torch",
    named=named,
    described=described_layers,
    seen=seen,
    hook=layer_hooks.install,
    watch=layer_watch.watch,
    unwatch=layer_watch.unwatch,
)


def annotate(model: nn.Module, name: str | None = None) -> Annotation[nn.Module]:
    """Label every call of every layer of ``model``, forward and backward, in what torch's profiler records.

    The hooks exist only while a profiler records; without one a model runs as it would without us. Nothing raises into
    the training. Paths are those of ``named_modules()``; ``name`` goes before them, and is the class where another
    model is annotated already. Annotating a model again returns the same handle; its ``remove()`` or the end of its
    ``with`` block ends the labels. A ``trace_handler`` keeps parameters, shapes and FLOPs of the layers with the
    recording. Raises UsageError for a name that is taken.
    """
    return annotation.annotate(FRAMEWORK, model, name)


def describe(model: nn.Module, *example_inputs: Any, **example_keywords: Any) -> Architecture:
    """The tree of layers with parameters, shapes and devices; with example inputs also calls, tensors and FLOPs.

    With inputs the model runs once, without gradients and in eval mode, then has its modes back; FLOPs are those that
    torch's own FlopCounterMode counts. ``print()`` shows the tree, ``to_pandas()`` returns it as a table.
    """
    found = list(named(model))
    called = run(model, found, example_inputs, example_keywords) if example_inputs or example_keywords else {}
    described = described_layers(found, called)
    return Architecture(type(model).__name__, FRAMEWORK.name, tuple(described))


def extra() -> dict[str, Any]:
    """What the handler keeps of the annotated models in ``TraceMeta.extra``."""
    return annotation.extra(FRAMEWORK)
