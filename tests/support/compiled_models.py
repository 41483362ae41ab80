"""Record ten compiled models with perfkit's handler: ``python compiled_models.py DIR``, for tests of compiled code.

Each model has its own folder in DIR, with a run, a Chrome trace, and ``origins.json``: for each kernel, the operators
of its graph nodes, taken from torch's own objects.

A C++ compiler takes seconds per kernel. So the kernels are not compiled, unless PERFKIT_TEST_CXX is set: a function of
Python records the event that the C++ code would record, under the name in this code, and computes nothing.
"""

from __future__ import annotations

import collections
import json
import re
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule

from perfkit_torch import trace_handler


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

    def forward(self, x):
        hidden = self.act(self.up(x))
        return self.down(hidden) * 2


class Convnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        x = functional.relu(self.norm(self.conv(x)))
        return functional.avg_pool2d(x, 2).flatten(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        scores = self.q(x) @ self.k(x).transpose(-1, -2) / 8**0.5
        weights = scores.softmax(-1)
        return weights @ self.v(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention, self.mlp = nn.LayerNorm(8), Attention(), Mlp()

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class NormChain(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))

    def forward(self, x):
        for norm in self.norms:
            x = torch.tanh(norm(x))
        return x


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x, target):
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits, target)


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(10, 8), nn.Embedding(4, 8)

    def forward(self, index):
        places = torch.arange(4)
        return self.words(index) + self.places(places)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8))

    def forward(self, x):
        y = self.inner(x)
        return (x + y).clamp(-1, 1)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.value = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        return gate * self.value(x)


REALLY_COMPILED = "residual"


def training_step(model, *inputs):
    model(*inputs).sum().backward()


def inference(model, *inputs):
    with torch.no_grad():
        model(*inputs)


def models():
    """Yield (name, model, inputs, step) for each model."""
    x = torch.randn(4, 8)
    yield "mlp", Mlp(), (x,), training_step
    yield "convnet", Convnet().eval(), (torch.randn(2, 3, 8, 8),), inference
    yield "transformer", Transformer(), (torch.randn(2, 4, 8),), inference
    yield "attention", Attention(), (torch.randn(2, 4, 8),), inference
    yield "rnn_cell", nn.GRUCell(8, 8), (x, x), inference
    yield "norm_chain", NormChain(), (x,), inference
    yield "cross_entropy", Classifier(), (x, torch.arange(4)), training_step
    yield "embedding", Embedding(), (torch.arange(4)[None],), inference
    yield "residual", Residual(), (x,), inference
    yield "gated", Gated(), (x,), training_step


def without_compiler():
    """Replace the compilation of kernels to functions that record the event of the kernel and compute nothing. Return a
    function that ends this."""
    from torch._inductor import codecache

    def load(cls, argtypes, main_code, *args, **kwargs):
        name = re.search(r'RecordFunctionHandle \w+\("(\w+)"', main_code)[1]

        def kernel(*buffers):
            with torch._C._profiler._RecordFunctionFast(name):
                pass

        return kernel

    original = vars(codecache.CppPythonBindingsCodeCache).get("load_pybinding")
    codecache.CppPythonBindingsCodeCache.load_pybinding = classmethod(load)

    def end():
        if original is None:
            del codecache.CppPythonBindingsCodeCache.load_pybinding
        else:
            codecache.CppPythonBindingsCodeCache.load_pybinding = original

    return end


def watched(origins):
    """Store the operators of each kernel call in the dictionary ``origins``, when torch writes the call."""
    from torch._inductor.codegen import cpp

    original = cpp.set_kernel_post_grad_provenance_tracing

    def watch(node_schedule, kernel_name, is_extern=False):
        for node in node_schedule:
            for origin in getattr(node.node, "origins", ()):
                packet = getattr(origin.meta.get("original_aten"), "_overloadpacket", None)
                if packet is not None and origin.op == "call_function":
                    origins[kernel_name].add(str(packet).replace(".", "::"))
        return original(node_schedule, kernel_name, is_extern)

    cpp.set_kernel_post_grad_provenance_tracing = watch


def main(folder, compiler):
    """Record each model in a folder of its name. With a ``compiler``, it makes the kernels of one model."""
    end = without_compiler()
    origins = collections.defaultdict(set)
    watched(origins)
    torch.manual_seed(0)
    for name, model, inputs, step in models():
        if compiler and name == REALLY_COMPILED:
            end()
        record(folder / name, model, inputs, step, origins)
        if name == REALLY_COMPILED:
            end = without_compiler()


def record(place, model, inputs, step, origins):
    place.mkdir()
    origins.clear()
    torch._dynamo.reset()
    compiled = torch.compile(model, dynamic=False)
    handler = trace_handler(place / "run", also=[lambda p: p.export_chrome_trace(str(place / "trace.json"))])
    plan = schedule(wait=1, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=handler) as profiler:
        for _ in range(4):
            step(compiled, *inputs)
            profiler.step()
    handler.flush()
    texts = {kernel: sorted(operators) for kernel, operators in origins.items()}
    (place / "origins.json").write_text(json.dumps(texts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), len(sys.argv) > 2)
