"""``annotate`` labels the layers of a torch model while a profiler records. ``describe`` returns a table of layers.

A label takes 0.6 µs with torch's fast record function. In versions without this function, the public
``record_function`` takes 5 µs. A hook on the last graph node of a call labels the backward pass. Unlike
``register_full_backward_hook``, this hook does not change the graph and forbids no in-place operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.parameter import is_lazy
from torch.utils.flop_counter import FlopCounterMode

from perfkit_core.recording import annotation, layer_flops, layer_framework
from perfkit_core.trace.assembly.labels import backward_label
from perfkit_core.trace.model.architecture import CallLog, Flops, Signature, path_parents

if TYPE_CHECKING:
    from perfkit_core.pages.architecture import PrintedArchitecture

__all__ = ["annotate", "describe"]


def _attention(module: Any, call: Signature) -> Flops:
    key = call.inputs[min(1, len(call.inputs) - 1)].shape
    length = key[-2] if module.batch_first or len(key) == 2 else key[0]
    return layer_flops.attention(call, module.embed_dim, length, True, module.out_proj.weight.requires_grad)


def _recurrent(module: Any, call: Signature) -> Flops:
    weights = {name: weight.numel() for name, weight in module.named_parameters() if name.startswith("weight")}
    of_input = sum(weights[name] for name in weights if name.startswith("weight_ih_l0"))
    return layer_flops.recurrent(call, of_input, sum(weights.values()) - of_input)


def _cell(module: Any, call: Signature) -> Flops:
    sizes = module.weight_ih.numel(), module.weight_hh.numel()
    return layer_flops.recurrent(call, *sizes, hidden_gradient=call.gradient(1))


_WRAPPERS: Final = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
"""Parts of a module path that torch adds when it wraps a module."""
_PARALLEL: Final = ("DataParallel", "DistributedDataParallel")
_ORIGINALS: Final = "_perfkit_originals"
"""Name of the attribute of ``torch.autograd.profiler`` that keeps torch's original start and stop functions.
:meth:`TorchLayers.watch` replaces these functions."""
_Label: Callable[[str], AbstractContextManager[Any]] = getattr(
    torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function
)


class TorchHooks(layer_framework.LayerHooks):
    """The hooks of one module. ``origins`` are the graph nodes that made the inputs of a call."""

    calls = layer_framework.OpenCalls()

    def __init__(self, path: str, class_name: str, log: CallLog) -> None:
        super().__init__(path, class_name, log)
        self._backward = backward_label(path, class_name)

    def origins(self, inputs: list[Any]) -> list[Any]:
        return [tensor.grad_fn for tensor in inputs]

    def mark(self, outputs: list[Any], origins: list[Any]) -> None:
        """Hook the last node of the call, because the backward pass executes it first. An in-place change of a view may
        replace this node later. Therefore the nodes directly before it are also hooked."""
        nodes = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
        nodes = [node for node in nodes if node not in origins]
        if nodes and torch.autograd._profiler_enabled():
            last = max(nodes, key=lambda node: node._sequence_nr() if hasattr(node, "_sequence_nr") else 0)
            mark = layer_framework.BackwardMark(self.framework, self._backward)
            last.register_prehook(mark)
            for node, _ in last.next_functions:
                if node is not None and node.next_functions and node not in origins:
                    node.register_prehook(mark)


class TorchLayers(layer_framework.LayerFramework):
    """The modules of a torch model. Paths omit wrappers: ``_orig_mod.fc`` in ``named_modules()`` becomes ``fc``."""

    name = "torch"
    tensor = torch.Tensor
    hooks = TorchHooks
    built_in = "torch.nn.modules."
    formulas: ClassVar[Sequence[tuple[type, layer_framework.Formula]]] = (
        (nn.Linear, lambda layer, call: layer_flops.linear(call, layer.out_features)),
        (nn.Bilinear, lambda layer, call: layer_flops.bilinear(call, layer.weight.shape)),
        (
            _ConvNd,
            lambda layer, call: layer_flops.convolution(call, layer.weight.shape, isinstance(layer, _ConvTransposeNd)),
        ),
        (nn.MultiheadAttention, _attention),
        (nn.RNNBase, _recurrent),
        (nn.RNNCellBase, _cell),
    )

    def named(self, model: nn.Module) -> Iterator[layer_framework.Named]:
        modules: dict[str, nn.Module] = {}  # a wrapper and its module have the same path: keep the module
        for path, module in model.named_modules():
            parts = [part for part in path.split(".") if part not in _WRAPPERS] if path else []
            if type(model).__name__ in _PARALLEL and parts[:1] == ["module"]:
                parts = parts[1:]
            modules[".".join(parts)] = module
        yield from modules.items()

    def watch(self) -> None:
        profiler = torch.autograd.profiler
        if not hasattr(profiler, "_run_on_profiler_start"):
            self.install()  # older torch reports no profiler start: keep the hooks, which check for one at each call
            return
        if not hasattr(profiler, _ORIGINALS):
            on_start, on_stop = profiler._run_on_profiler_start, profiler._run_on_profiler_stop

            def started() -> None:
                on_start()
                self.install()

            def stopped() -> None:
                self.uninstall()
                on_stop()

            setattr(profiler, _ORIGINALS, (on_start, on_stop))
            profiler._run_on_profiler_start, profiler._run_on_profiler_stop = started, stopped
        if torch.autograd._profiler_enabled():
            self.install()

    def unwatch(self) -> None:
        profiler = torch.autograd.profiler
        if not self.active and hasattr(profiler, _ORIGINALS):
            profiler._run_on_profiler_start, profiler._run_on_profiler_stop = getattr(profiler, _ORIGINALS)
            delattr(profiler, _ORIGINALS)

    def recording(self) -> bool:
        return not self.compiling() and torch.autograd._profiler_enabled()

    def compiling(self) -> bool:
        return bool(torch.compiler.is_compiling() or torch.jit.is_tracing())

    def label(self, text: str) -> AbstractContextManager[Any]:
        return _Label(text)

    def before_call(self, layer: nn.Module, hook: Callable[..., None]) -> Any:
        return layer.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)

    def after_call(self, layer: nn.Module, hook: Callable[..., None], always: bool = False) -> Any:
        return layer.register_forward_hook(hook, with_kwargs=True, always_call=always)

    @contextmanager
    def evaluation(self, model: nn.Module) -> Iterator[None]:
        """Run in eval mode without gradients. Attention runs as matrix products, which torch's FLOP counter counts."""
        training = [(module, module.training) for module in model.modules()]
        backend = getattr(torch.backends, "mha", None)
        fast = backend.get_fastpath_enabled() if backend else None
        try:
            model.eval()
            if backend:
                backend.set_fastpath_enabled(False)
            with sdpa_kernel(SDPBackend.MATH), torch.no_grad():
                yield
        finally:
            if backend:
                backend.set_fastpath_enabled(fast)
            for module, mode in training:
                module.training = mode

    def gradients_enabled(self) -> bool:
        return bool(torch.is_grad_enabled())

    def needs_gradient(self, tensor: torch.Tensor) -> bool:
        return bool(tensor.requires_grad)

    def device(self, tensor: torch.Tensor) -> str:
        return str(tensor.device)

    def shape(self, parameter: torch.Tensor) -> tuple[int, ...] | None:
        return None if is_lazy(parameter) else tuple(parameter.shape)

    def run(
        self, model: nn.Module, layers: Sequence[layer_framework.Named], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        with FlopCounterMode(display=False) as counter:
            called = super().run(model, layers, args, kwargs)
        names = {id(module): path for path, module in model.named_modules()}
        counts, model_name = counter.get_flop_counts(), type(model).__name__
        paths = [names[id(module)] for _, module in layers]
        total = [int(sum(counts.get(f"{model_name}.{path}" if path else model_name, {}).values())) for path in paths]
        # FlopCounterMode includes the children of a layer, so they are subtracted. ``layers`` lists parents first.
        parents = path_parents([path for path, _ in layers]).tolist()
        exclusive = [0] * len(total)
        for child in reversed(range(len(total))):
            total[child] = total[child] if layers[child][0] in called else -exclusive[child]
            exclusive[child] += total[child]
            if parents[child] >= 0:
                exclusive[parents[child]] -= total[child]
        for (path, module), flops in zip(layers, exclusive, strict=True):
            # The counter has no formula for fused recurrent layers, for instance.
            if path in called and self.formula(module) is None:
                called[path]["flops"] = flops
        return called


FRAMEWORK: Final = TorchLayers()
TorchHooks.framework = FRAMEWORK


def annotate(model: nn.Module, name: str | None = None) -> annotation.Annotation[nn.Module]:
    """Label every call of every layer of ``model``, forward and backward, in the events of torch's profiler.

    The label of a layer contains its path in ``named_modules()``, for example ``encoder.0.fc``. If ``name`` is given,
    the path begins with it. The first model without a name has no prefix. The paths of further models without a name
    begin with the class of the model.

    The labelling ends with ``remove()``, or with the ``with`` block of the returned object. A second call for the same
    model returns the same object. The hooks are installed only while a profiler records, and they never raise. A
    ``trace_handler`` stores the parameters, shapes and FLOPs of the layers in the recording. Raises UsageError if
    another model has this name."""
    return annotation.annotate(FRAMEWORK, model, name)


def describe(model: nn.Module, *example_inputs: Any, **example_keywords: Any) -> PrintedArchitecture:
    """Return the tree of layers with parameters, shapes and devices.

    If example inputs are given, the model runs once, in eval mode without gradients. The tree then also contains calls,
    tensors and FLOPs. torch's FlopCounterMode counts the FLOPs. The train or eval mode of each layer is restored.
    ``print()`` shows the tree, and ``to_pandas()`` returns it as a table."""
    from perfkit_core.pages.architecture import PrintedArchitecture  # imports pandas, only needed here

    described = FRAMEWORK.describe(model, example_inputs, example_keywords)
    return PrintedArchitecture(described.name, described.framework, described.layers)
