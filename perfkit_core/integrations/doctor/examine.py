"""Run all checks of the installation, in parallel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from perfkit_core.base.system.failures import one_line
from perfkit_core.integrations.doctor import devices, distributions, frameworks, machine_checks
from perfkit_core.plugins.checks import PROBLEM, Check
from perfkit_core.plugins.manager import get_plugins


def examine(tell: Callable[[str], None] = lambda pending: None) -> list[Check]:
    """Return the results of all checks, by topic. A check that fails becomes a result with its error. ``tell`` is
    called with the topics of the unfinished checks whenever one of them ends."""
    parts = {name: framework.checks() for name, framework in get_plugins().frameworks().items()}
    adapters = {name: checks for name, checks in parts.items() if checks is not None}
    of_frameworks = [name for checks in adapters.values() for name in checks.distributions]
    quick: list[tuple[str, Callable[[], Iterable[Check]]]] = [
        ("version", distributions.versions),
        ("version", machine_checks.machine),
        ("extra", functools.partial(distributions.extras, of_frameworks)),
        ("compiled", machine_checks.compiled_functions),
        ("folder", machine_checks.folders),
        ("terminal", machine_checks.terminal),
    ]
    slow: list[tuple[str, Callable[[], Iterable[Check]]]] = [  # each waits for a new process
        *((f"framework.{name}", functools.partial(frameworks.framework, name, adapters[name])) for name in adapters),
        ("dependency", distributions.dependencies),
        ("plugin", frameworks.plugins),
    ]
    with ThreadPoolExecutor(len(slow)) as pool:
        waiting = {pool.submit(_results, name, check): name.rpartition(".")[2] for name, check in slow}
        results = [check for name, run in quick for check in _results(name, run)]
        for _ in as_completed(waiting):
            tell(", ".join(dict.fromkeys(name for future, name in waiting.items() if not future.done())))
        results += [check for future in waiting for check in future.result()]
    device_counts = [check.data["devices"] for check in results if check.data.get("devices") is not None]
    results += _results("device", functools.partial(devices.devices, sum(device_counts) if device_counts else None))
    return results


def _results(name: str, check: Callable[[], Iterable[Check]]) -> Sequence[Check]:
    results: list[Check] = []
    try:
        results.extend(check())
    except Exception as error:  # whatever is broken, the other checks must run
        results.append(Check(f"{name}.check", PROBLEM, f"this check failed ({one_line(error)})", "please report it"))
    return results
