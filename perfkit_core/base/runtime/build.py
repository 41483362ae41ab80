"""Compiles the functions of modules, when perfkit is built or installed: ``python -m perfkit_core.base.runtime.build``.

numba translates the functions to LLVM IR. LLVM optimises all functions of a module together, for any processor of the
architecture. The C compiler of the system links them to a library, which needs no other library: it works with every
version of Python, and on every Linux of the architecture."""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import types as python_types
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import cfunc, from_dtype, njit, types
from numba.core import cgutils, config
from numba.core.registry import cpu_target
from numba.extending import intrinsic, typeof_impl
from numba.np.arrayobj import populate_array

from perfkit_core.base.runtime import freshness, library
from perfkit_core.base.runtime.compiled import INLINED, CompiledFunction, Mode, Primitive
from perfkit_core.base.runtime.primitives import put_int64
from perfkit_core.base.runtime.signature import KINDS, NUMBERS, Array, Record, Signature
from perfkit_core.base.system.processes import temporary_name

_LEVEL: Final = {"x86_64": ("x86-64-v2", "+sse4.2,+ssse3,+popcnt,+cx16")}
"""For each architecture, the oldest processor on which the code runs, and its features. numpy has the same limit."""
CPU, FEATURES = _LEVEL.get(platform.machine(), ("generic", ""))
config.CPU_NAME, config.CPU_FEATURES = CPU, FEATURES
_OPTIONS: Final = {"nogil": True, "error_model": "numpy", "_nrt": False}
"""Without reference counting and division checks, compiled functions cannot raise errors."""
_STAMP: Final = "perfkit_stamp"
"""Name of the text in a library that :func:`freshness.stamp` returned."""
_ALLOWED: Final = ("llvm.", "memset", "memcpy", "memmove")
"""Beginnings of the names of functions that compiled code may call. LLVM replaces ``llvm.*`` by instructions. Every
process has the others in its libc."""


@functools.cache
def dispatcher(function: CompiledFunction[..., Any] | Primitive, checked: bool = False) -> Any:
    """Return what numba calls if a compiled function calls another one. With ``checked``, it checks array indices."""
    if isinstance(function, Primitive):
        return _instruction(function)
    return njit(forceinline=function.traits == INLINED, boundscheck=checked, **_OPTIONS)(function.python)


@typeof_impl.register(CompiledFunction)  # type: ignore[untyped-decorator]
@typeof_impl.register(Primitive)  # type: ignore[untyped-decorator]
def _type_of(function: CompiledFunction[..., Any] | Primitive, _: Any) -> Any:
    called, context = dispatcher(function, Mode.instead is checked), cpu_target.typing_context
    context.refresh()  # reads the intrinsics that were defined in the meantime
    return context.resolve_value_type(called)


def checked(function: CompiledFunction[..., Any]) -> Any:
    """Return a function that numba compiles at its first call, and that checks array indices. ``Mode.instead`` may be
    set to it, for tests."""
    return dispatcher(function, True)


def _instruction(primitive: Primitive) -> Any:
    kind = getattr(types, primitive.kind)
    bits = kind.bitwidth

    def pointer(builder: Any, arguments: Any) -> Any:
        return builder.gep(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()), [arguments[1]])

    def load(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        loaded = builder.load(pointer(builder, arguments))
        loaded.align = 1
        return loaded

    def store(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        stored = builder.store(arguments[2], pointer(builder, arguments))
        stored.align = 1
        return context.get_dummy_value()

    def trailing_zeros(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.true_bit)

    if primitive.instruction == "load":
        return intrinsic(lambda typing, address, index: (kind(types.int64, types.int64), load))
    if primitive.instruction == "store":
        return intrinsic(lambda typing, address, index, value: (types.void(types.int64, types.int64, kind), store))
    return intrinsic(lambda typing, word: (types.int64(kind), trailing_zeros))


def _record(dtype: np.dtype[Any]) -> Any:
    """Return a function that returns the record at an address."""
    record = from_dtype(dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(record))

    return intrinsic(lambda typing, address: (record(types.int64), generate))


def _array(kind: Array, dtype: np.dtype[Any]) -> Any:
    """Return a function that returns the array at an address, given the lengths of its dimensions, and the stride. If
    the array is not to be changed, its type is read only: numba refuses functions that would change it."""
    array = types.Array(from_dtype(dtype), kind.dimensions, "A" if kind.strided else "C", readonly=not kind.changed)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, lengths = arguments[0], arguments[1 : kind.dimensions + 1]
        struct = context.make_array(array)(context, builder)
        size = context.get_constant(types.intp, dtype.itemsize)
        strides = [*arguments[kind.dimensions + 1 :]] or [size]
        for length in lengths[:0:-1]:
            strides.insert(0, builder.mul(strides[0], length))
        data = builder.inttoptr(address, struct.data.type)
        shape, steps = (cgutils.pack_array(builder, values, ir.IntType(64)) for values in (lengths, strides))
        populate_array(struct, data=data, shape=shape, strides=steps, itemsize=size, meminfo=None)
        return struct._getvalue()

    if kind.numbers == 2:
        return intrinsic(lambda typing, address, n: (array(types.int64, types.int64), generate))
    return intrinsic(lambda typing, address, n, m: (array(types.int64, types.int64, types.int64), generate))


def _entry(function: CompiledFunction[..., Any], of: Signature, dtypes: Sequence[np.dtype[Any]]) -> Any:
    """Return a C function that takes addresses and numbers, and calls the compiled function. ``dtypes`` are those of
    its arrays. Results of several numbers are written to the address that comes last."""
    names: dict[str, Any] = {"called": dispatcher(function), "put": dispatcher(put_int64), "int64": np.int64}
    takes: list[tuple[str, Any]] = []
    passed: list[str] = []
    left = iter(dtypes)
    for number, kind in enumerate(of.parameters):
        if isinstance(kind, Array):
            parts = [f"a{number}_{part}" for part in range(kind.numbers)]
            takes += [(part, types.int64) for part in parts]
            names[f"array{number}"] = _array(kind, next(left))
            passed.append(f"array{number}({', '.join(parts)})")
        elif isinstance(kind, Record):
            takes.append((f"a{number}", types.int64))
            names[f"record{number}"] = _record(kind.dtype)
            passed.append(f"record{number}(a{number})")
        else:
            takes.append((f"a{number}", getattr(types, kind)))
            passed.append(f"a{number}")
    called, result = f"called({', '.join(passed)})", types.void
    if of.several:
        takes.append(("out", types.int64))
        puts = [f" put(out, {cell}, int64(result[{cell}]))\n" for cell in range(len(of.results))]
        body = f" result = {called}\n" + "".join(puts)
    elif of.results:
        result = getattr(types, NUMBERS[of.results[0]])
        body = f" return {called}\n" if result == types.uint64 else f" return int64({called})\n"
    else:
        body = f" {called}\n"
    exec(f"def entry({', '.join(name for name, _ in takes)}):\n{body}", names)
    options = {key: value for key, value in _OPTIONS.items() if key != "nogil"}
    return cfunc(result(*(kind for _, kind in takes)), **options)(names["entry"])


def exported(module: python_types.ModuleType) -> dict[CompiledFunction[..., Any], Signature]:
    """Return the compiled functions of a module that Python code can call, with their types."""
    functions = {function: function.signature for function in freshness.functions_of(module)}
    return {function: of for function, of in functions.items() if of is not None}


def object_code(module: python_types.ModuleType) -> bytes:
    """Return the machine code of the :func:`exported` functions of a module, and of the functions that these call.
    Raises SystemExit if a function could raise an error, or calls a function that is not in the library."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    stamp = freshness.stamp(module)
    entries, linked = [_STAMP], llvm.parse_assembly(f'@{_STAMP} = constant [{len(stamp)} x i8] c"{stamp}"')
    for function, of in exported(module).items():
        arrays = [kind.dtypes for kind in of.parameters if isinstance(kind, Array)]
        for dtypes in itertools.product(*arrays):
            entry = _entry(function, of, dtypes)
            part = llvm.parse_assembly(entry._library.get_llvm_str())
            name = function.__name__ + "".join(f"_{KINDS[dtype]}" for dtype in dtypes)
            part.get_function(entry.native_name).name = name
            entries.append(name)
            linked.link_in(part)
    for value in (*linked.functions, *linked.global_variables):
        if not value.is_declaration and value.name not in entries:
            value.linkage = "internal"
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=CPU, features=FEATURES, opt=3, reloc="pic")
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(linked, passes)
    outside = [f.name for f in linked.functions if f.is_declaration and not f.name.startswith(_ALLOWED)]
    if outside:
        raise SystemExit(f"{module.__name__}: a compiled function may raise an error or allocate memory: {outside}")
    return machine.emit_object(linked)  # type: ignore[no-any-return]


def linked(code: Path, path: Path) -> None:
    """Link machine code to a shared library. Raises SystemExit if no C compiler is installed, or if it fails."""
    names = (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    commands = [words for name in names if name and shutil.which((words := shlex.split(name))[0])]
    if not commands:
        raise SystemExit("perfkit needs a C compiler to be built: install gcc or clang, or set CC")
    alone = ["-dynamiclib", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared", "-nostdlib"]
    done = subprocess.run([*commands[0], *alone, "-Wl,-S", "-o", path, code], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{commands[0][0]} cannot link the compiled functions: {done.stderr.strip()}")


def build(name: str) -> None:
    """Write the library of a module, if it is missing or out of date."""
    module = importlib.import_module(name)
    path = library.library_path(name)
    if not exported(module) or freshness.is_fresh(path, freshness.stamp(module)):
        return
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(temporary_name(path.name))
    code = temporary.with_suffix(".o")
    try:
        code.write_bytes(object_code(module))
        linked(code, temporary)
        temporary.replace(path)  # processes that run the old code keep it
    finally:
        code.unlink(missing_ok=True)
        temporary.unlink(missing_ok=True)


def modules(root: Path) -> list[str]:
    """Return the modules of all packages below ``root`` that have compiled functions."""
    files = [file for package in root.glob("perfkit_*") for file in package.rglob("*.py")]
    marked = [file for file in files if "\n@compiled\n" in file.read_text(encoding="utf-8")]
    return [".".join(file.relative_to(root).with_suffix("").parts) for file in marked]


def main(names: Sequence[str]) -> None:
    """Build the libraries of the modules ``names``, or of all modules, in several processes. In the second case, remove
    the libraries of modules that no longer exist."""
    os.environ["NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"] = "1"
    root = Path(__file__).parents[3]
    module_names = names or modules(root)
    if not names:
        for path in root.glob("perfkit_*/_compiled/*.so"):
            if path.stem not in module_names:
                path.unlink()
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(build, module_names))


if __name__ == "__main__":
    main(sys.argv[1:])
