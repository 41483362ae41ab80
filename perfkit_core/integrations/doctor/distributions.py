"""Checks of installed packages: perfkit itself, what it depends on, and its extras."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfkit_core.integrations.doctor import child_process
from perfkit_core.plugins.contracts import PROBLEM, Check

if TYPE_CHECKING:
    from packaging.requirements import Requirement

DISTRIBUTION: Final = "perfkit"
_MODULES: Final = {"universal-pathlib": "upath", "protobuf": "google.protobuf", "ipython": "IPython"}
"""Distributions that are not named after the module that they install."""
_EVERYTHING: Final = "all"
"""The extra that consists of all extras for users. The others are for the development of perfkit."""
_REINSTALL: Final = "pip install --force-reinstall --no-deps {name}"


def versions() -> Iterator[Check]:
    """Yield the versions of perfkit, Python and the platform."""
    package = installed(DISTRIBUTION)
    if package is None:
        fix = "install it with pip, so that its dependencies can be checked"
        yield Check("version.perfkit", "warning", "perfkit is imported, but not installed as a package", fix)
    else:
        yield Check("version.perfkit", "ok", f"perfkit {package.version}", data={"version": package.version})
    python = f"{platform.python_implementation().removeprefix('C')} {platform.python_version()}"
    needs = package.metadata["Requires-Python"] if package is not None else None
    data = {"version": platform.python_version(), "requires": needs, "folder": sys.prefix}
    if needs is not None and not _in_range(platform.python_version(), needs):
        yield Check("version.python", PROBLEM, f"{python}, but perfkit needs {needs}", "use another Python", data)
    else:
        yield Check("version.python", "ok", f"{python} in {sys.prefix}", data=data)
    yield Check("version.platform", "ok", platform.platform(), data={"platform": platform.platform()})


def dependencies() -> Iterator[Check]:
    """Yield a check of each package that perfkit needs: its version, and whether it can be imported."""
    needs = requirements().get("", [])
    checks = {need.name: _required(need) for need in needs}
    present = [name for name, check in checks.items() if check.status == "ok"]
    for name, error in unimportable(present).items():
        text = f"{checks[name].text} cannot be imported: {error}"
        checks[name] = replace(checks[name], status=PROBLEM, text=text, fix=_REINSTALL.format(name=name))
    yield from checks.values()
    libraries = list((Path(__file__).parents[2] / "output" / "renderers" / "html" / "libraries").glob("*.zlib"))
    if libraries:
        yield Check("dependency.pages", "ok", "libraries of pages", data={"files": len(libraries)})
    else:
        text = "the libraries of pages were not made, so perfkit report and view do not work"
        yield Check("dependency.pages", PROBLEM, text, "run pip install -e . in the checkout", {"files": 0})


def extras(leave_out: Iterable[str] = ()) -> Iterator[Check]:
    """Yield a check of each package of the extras for users. ``leave_out`` are packages with checks of their own."""
    by_extra = requirements()
    everything = {need.name for need in by_extra.get(_EVERYTHING, [])}
    users = {extra: needs for extra, needs in by_extra.items() if extra not in ("", _EVERYTHING)}
    users = {extra: needs for extra, needs in users.items() if {need.name for need in needs} <= everything}
    names: dict[str, list[str]] = {}
    requirement_of: dict[str, Requirement] = {}
    for extra, needs in users.items():
        for need in needs:
            names.setdefault(need.name, []).append(extra)
            requirement_of[need.name] = need
    for name, need in requirement_of.items():
        if name not in set(leave_out):
            yield _optional(need, names[name])


def installed(name: str) -> Distribution | None:
    """Return the metadata of an installed package, or None. Packages with unreadable metadata count as missing."""
    try:
        package = distribution(name)
        return package if package.metadata["Name"] and package.version else None
    except (PackageNotFoundError, KeyError, OSError, UnicodeDecodeError):  # OSError: importlib_metadata is in use
        return None


def requirements() -> Mapping[str, Sequence[Requirement]]:
    """Return what perfkit needs on this machine by extra; "" are the packages that it always needs."""
    from packaging.requirements import Requirement

    package, result = installed(DISTRIBUTION), dict[str, list[Requirement]]()
    for extra in ("", *((package.metadata.get_all("Provides-Extra") or ()) if package else ())):
        for need in map(Requirement, (package.requires if package else None) or ()):
            of_extra = "extra" in str(need.marker or "")
            if of_extra == bool(extra) and (need.marker is None or need.marker.evaluate({"extra": extra})):
                result.setdefault(extra, []).append(need)
    return result


def supported(version: str, names: Iterable[str]) -> str | None:
    """Return the range of versions that perfkit supports of the first of the packages ``names`` that it names in a
    dependency or an extra, if ``version`` is not in this range, else None."""
    by_name = {need.name: str(need.specifier) for needs in requirements().values() for need in needs}
    needs = next((by_name[name] for name in names if name in by_name), "")
    return needs if needs and not _in_range(version, needs) else None


def unimportable(names: Sequence[str]) -> dict[str, str]:
    """Return the packages that cannot be imported, each with the reason."""
    modules, reasons = {_MODULES.get(name, name.replace("-", "_")): name for name in names}, dict[str, str]()
    left = list(modules)
    while left:
        results = child_process.checks_of("import", "perfkit_core.integrations.doctor.child_process:imported", left)
        for check in results:
            module = check.name.removeprefix("import.") if check.name != "import" else left[0]
            left.remove(module)
            if check.status != "ok":
                # the reason of a crash also names the module before it, which can be imported
                reasons[modules[module]] = check.text.partition(", after: ")[0] + elsewhere(modules[module], module)
        if not results:
            break
    return reasons


def elsewhere(name: str, module: str) -> str:
    """Return a clause that says where Python finds a module, if this is not where its package is installed, else ""."""
    package, spec = installed(name), importlib.util.find_spec(module.partition(".")[0])
    origin = None if spec is None else spec.origin
    if package is None or origin is None or Path(origin).is_relative_to(Path(str(package.locate_file("")))):
        return ""
    return f"; Python finds it in {Path(origin).parent}, not in the installed package: check PYTHONPATH"


def _in_range(version: str, needs: str) -> bool:
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        # a local version such as 2.13.0+cu126 is the version 2.13.0
        return Version(version).public in SpecifierSet(needs, prereleases=True)
    except InvalidVersion:
        return True


def _required(need: Requirement) -> Check:
    package = installed(need.name)
    name, range_, install = f"dependency.{need.name}", str(need.specifier), f'pip install "{need.name}{need.specifier}"'
    if package is None:
        return Check(name, PROBLEM, f"{need.name} is not installed", install, {"version": None, "requires": range_})
    data = {"version": package.version, "requires": range_}
    if _in_range(package.version, range_):
        return Check(name, "ok", f"{need.name} {package.version}", data=data)
    return Check(name, PROBLEM, f"{need.name} {package.version}, but perfkit needs {range_}", install, data)


def _optional(need: Requirement, names: Sequence[str]) -> Check:
    check = _required(need)
    check = replace(check, name=f"extra.{need.name}", data={**check.data, "extras": list(names)})
    if check.data["version"] is None:
        fix = f'pip install "{DISTRIBUTION}[{names[0]}]"'
        return replace(check, status="note", text=f"{need.name} is not installed (extra {', '.join(names)})", fix=fix)
    return replace(check, text=f"{check.text} (extra {', '.join(names)})") if check.status == "ok" else check
