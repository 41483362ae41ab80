"""Checks of the machine: processor, GPU drivers and the right to profile, compiled functions, folders, terminal."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
import webbrowser
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from perfkit_core.base.language.units import counted, format_bytes
from perfkit_core.base.system.failures import why_unwritable
from perfkit_core.base.system.machine import cpu_model, has_display, usable_cpus
from perfkit_core.base.system.paths import user_folder
from perfkit_core.plugins.contracts import PROBLEM, Check, Status

RUNS: Final = "runs"
_REINSTALL: Final = "pip install --force-reinstall --no-deps perfkit"


def machine() -> Iterator[Check]:
    """Yield the processor."""
    cores = len(usable_cpus())
    yield Check("version.processor", "ok", f"{cpu_model()}, {counted(cores, 'usable core')}", data={"cores": cores})


def compiled_functions() -> Iterator[Check]:
    """Yield whether the libraries of compiled functions of perfkit's packages can be loaded."""
    folder = Path(__file__).parents[3]
    libraries = sorted(folder.glob("perfkit_*/_compiled/*.so"))
    broken = [(path.name, str(error)) for path in libraries if (error := _load_error(path))]
    size = sum(path.stat().st_size for path in libraries)
    data = {"folder": str(folder), "bytes": size, "libraries": len(libraries), "broken": [name for name, _ in broken]}
    if broken or not libraries:
        text = "{} cannot be loaded ({})".format(*broken[0]) if broken else f"compiled code is missing in {folder}"
        yield Check("compiled.libraries", PROBLEM, text, _REINSTALL, data)
    else:
        text = f"{counted(len(libraries), 'compiled module')} ({format_bytes(size)}) in {folder}"
        yield Check("compiled.libraries", "ok", text, data=data)


def _load_error(path: Path) -> OSError | None:
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        return error
    return None


def folders() -> Iterator[Check]:
    """Yield whether perfkit can write its folders."""
    cache, state = user_folder("XDG_CACHE_HOME", ".cache"), user_folder("XDG_STATE_HOME", ".local/state")
    runs = Path.cwd() / RUNS
    yield _folder("folder.runs", "recordings", runs, PROBLEM, "name another folder: perfkit record -o DIR")
    yield _folder("folder.cache", "pages and calibrations", cache, "warning", "set XDG_CACHE_HOME to a writable folder")
    yield _folder("folder.state", "outcomes of advice", state, "warning", "set XDG_STATE_HOME to a writable folder")


def _folder(name: str, content: str, folder: Path, bad: Status, fix: str) -> Check:
    reason = why_unwritable(folder)
    data = {"folder": str(folder), "writable": reason is None}
    if reason is None:
        return Check(name, "ok", f"{content}: {folder}", data=data)
    return Check(name, bad, f"{content}: {folder} cannot be written ({reason})", fix, data)


def terminal() -> Iterator[Check]:
    """Yield what the terminal can show, and whether a browser can be opened."""
    columns, lines = shutil.get_terminal_size()
    encoding = (sys.stdout.encoding or "unknown").lower()
    is_terminal = sys.stdout.isatty()
    data = {
        "terminal": is_terminal, "columns": columns, "lines": lines, "encoding": encoding,
        "term": os.environ.get("TERM"), "no_color": bool(os.environ.get("NO_COLOR")),
    }  # fmt: skip
    text = f"a terminal of {columns} × {lines} characters" if is_terminal else "the output is not a terminal"
    if encoding.replace("-", "") == "utf8":
        yield Check("terminal.output", "ok", f"{text}, {encoding}", data=data)
    else:
        fix = "set PYTHONIOENCODING=utf-8, or a UTF-8 locale such as LANG=C.UTF-8"
        yield Check("terminal.output", "note", f"{text}, whose encoding {encoding} lacks some characters", fix, data)
    browser = _browser()
    data = {"browser": browser, "display": has_display()}
    if browser is not None and has_display():
        yield Check("terminal.browser", "ok", f"perfkit view opens {browser}", data=data)
    else:
        why = "no browser was found" if browser is None else "there is no display"
        fix = "perfkit view prints how to open its page on another computer; or set BROWSER"
        yield Check("terminal.browser", "note", f"{why}, so perfkit view opens no page here", fix, data)


def _browser() -> str | None:
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return None
    return str(getattr(browser, "name", "") or type(browser).__name__)


_CUPTI: Final = "nvidia-cuda-cupti"
_TOOLKITS: Final = "usr/local/cuda*/extras/CUPTI/lib64/libcupti.so*"
_COUNTERS: Final = re.compile(r"^RmProfilingAdminOnly:\s*(\d+)", re.MULTILINE)
_NUMBER: Final = re.compile(r"\d+\.\d+(?:\.\d+)*")
_CAPABILITIES: Final = re.compile(r"^CapEff:\s*([0-9a-f]+)", re.MULTILINE)
_ADMINISTRATORS: Final = (21, 38)
"""Numbers of the Linux capabilities CAP_SYS_ADMIN and CAP_PERFMON."""


@dataclass(frozen=True, slots=True)
class Driver:
    """A kernel driver. ``versions`` are files that have its version, and ``nodes`` patterns of its device files."""

    vendor: str
    versions: tuple[str, ...]
    nodes: tuple[str, ...]


DRIVERS: Final = (
    Driver("NVIDIA", ("proc/driver/nvidia/version",), ("dev/nvidiactl", "dev/nvidia[0-9]*", "dev/dxg")),
    Driver("AMD", ("sys/module/amdgpu/version", "sys/module/amdgpu"), ("dev/kfd",)),
    Driver("Intel", ("sys/module/xe", "sys/module/i915"), ("dev/dri/renderD*",)),
    Driver("Kunlun", ("proc/kunlun/version",), ("dev/xpuctrl", "dev/xpu[0-9]*")),
)


def devices(visible_devices: int | None, root: Path = Path("/")) -> Iterator[Check]:
    """Yield the checks of GPU drivers. ``visible_devices`` is the number of devices that the installed frameworks see,
    None without a framework. ``root`` is the root folder of the file system."""
    drivers = 0
    for driver in DRIVERS:
        file = next((root / name for name in driver.versions if (root / name).exists()), None)
        nodes = sorted(node for pattern in driver.nodes for node in root.glob(pattern))
        if file is None and not (driver.vendor == "NVIDIA" and nodes):
            continue
        drivers += 1
        yield _driver(driver, _version(file), nodes)
        if driver.vendor == "NVIDIA":
            yield from cupti(root)
            yield from counters(root / "proc/driver/nvidia/params")
    if not drivers:
        yield Check("device.driver", "note", "no driver of a GPU was found", data={"vendor": None})
    elif visible_devices == 0:
        text = "there is a driver of a GPU, but no installed framework sees a GPU: see its checks below"
        yield Check("device.seen", "warning", text, "install the framework's build for this GPU")


def _driver(driver: Driver, version: str | None, nodes: list[Path]) -> Check:
    name = f"device.{driver.vendor.lower()}"
    closed = [node.name for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    data: dict[str, Any] = {"vendor": driver.vendor, "version": version, "nodes": len(nodes), "closed_nodes": closed}
    text = f"{driver.vendor} driver{f' {version}' if version else ', version unknown'}"
    if not nodes:
        fix = "in a container, pass the devices: --gpus all (NVIDIA), --device /dev/kfd --device /dev/dri (AMD)"
        return Check(name, "warning", f"{text}, but no device files in /dev", fix, data)
    if closed:
        fix = "add your user to the group that owns them (often video or render), then log in again"
        return Check(name, "warning", f"{text}; you may not use {', '.join(closed)} in /dev", fix, data)
    return Check(name, "ok", text, data=data)


def _version(file: Path | None) -> str | None:
    if file is None or not file.is_file():
        return None
    match = _NUMBER.search(file.read_text(encoding="utf-8", errors="replace"))
    return match[0] if match else None


def cupti(root: Path = Path("/")) -> Iterable[Check]:
    """Yield which copies of CUPTI are installed, the library with which profilers record the work of NVIDIA GPUs."""
    names = ((package.metadata["Name"] or "", package.version) for package in distributions())
    packages = {name: version for name, version in names if name.lower().startswith(_CUPTI)}
    toolkits = sorted({file.relative_to(root).parts[2] for file in root.glob(_TOOLKITS)})
    data = {"packages": packages, "toolkits": toolkits}
    copies = [*(f"{name} {version}" for name, version in packages.items()), *toolkits]
    if copies:
        yield Check("device.cupti", "ok", f"CUPTI: {', '.join(copies)}", data=data)
    else:
        text = "no package of CUPTI and no CUDA toolkit is installed; a framework may contain its own copy"
        yield Check("device.cupti", "note", text, data=data)


def counters(params: Path) -> Iterable[Check]:
    """Yield who may read hardware counters, from the parameters of NVIDIA's driver."""
    try:
        match = _COUNTERS.search(params.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        match = None
    admin_only = None if match is None else match[1] != "0"
    allowed = admin_only is False or _is_administrator()
    data = {"admin_only": admin_only, "allowed": None if admin_only is None else allowed}
    if admin_only is None:
        text = "unknown who may read hardware counters: the driver's parameters cannot be read"
        yield Check("device.counters", "note", text, data=data)
    elif allowed:
        who = "you, as an administrator" if admin_only else "all users"
        yield Check("device.counters", "ok", f"hardware counters may be read by {who}", data=data)
    else:
        text = (
            "only administrators may read hardware counters (RmProfilingAdminOnly: 1); Nsight Compute needs them, and "
            "so do old versions of CUDA to record kernels"
        )
        fix = (
            "set the option NVreg_RestrictProfilingToAdminUsers=0 of the kernel module nvidia and reboot; in a "
            "container, add --cap-add=SYS_ADMIN"
        )
        yield Check("device.counters", "note", text, fix, data)


def _is_administrator() -> bool:
    try:
        match = _CAPABILITIES.search(Path("/proc/self/status").read_text(encoding="ascii", errors="replace"))
    except OSError:
        match = None
    return match is not None and any(int(match[1], 16) >> capability & 1 for capability in _ADMINISTRATORS)
