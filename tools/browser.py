"""Find the browser for tests of pages, or install one if there is none: ``python tools/browser.py``"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

MISSING: Final = "no browser starts: apt-get install --no-install-recommends chromium, or let CHROMIUM name one"
_PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
_DOWNLOAD_SECONDS: Final = 300
_CONNECTION_MILLISECONDS: Final = 10_000


def launch(playwright: Playwright) -> Browser:
    """Return a headless browser: the first candidate that starts. Raises LookupError if none starts."""
    from playwright.sync_api import Error

    for program in _candidates():
        try:
            return playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        # Ubuntu's chromium-browser only prints that it is a snap. A downloaded browser may lack system libraries.
        except Error:
            continue
    raise LookupError(MISSING)


def _candidates() -> list[str | None]:
    """Return the paths of browsers to try. None is the browser that playwright downloaded."""
    named = os.environ.get("CHROMIUM")
    if named:
        return [named]
    return [path for program in _PROGRAMS if (path := shutil.which(program))] + [None]


def _version() -> str | None:
    """Return the version of the first browser that starts, or None if none starts."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        try:
            browser = launch(playwright)
        except LookupError:
            return None
        version = browser.version
        browser.close()
        return version


def _download() -> None:
    """Download playwright's browser. It works only if the system already has the libraries of a browser."""
    timeout = {"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": str(_CONNECTION_MILLISECONDS)}
    _run([sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"], timeout)


def _install_package() -> None:
    """Install Debian's package as root."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update", "-qq"], quiet)
    _run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium"], quiet)


def _run(command: list[str], environment: dict[str, str]) -> None:
    """Run and print a command. If it fails, print the last line of its output."""
    print(f"browser: {' '.join(command)}", flush=True)
    try:
        done = subprocess.run(
            command, env=os.environ | environment, timeout=_DOWNLOAD_SECONDS, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"browser: stopped after {_DOWNLOAD_SECONDS} s", flush=True)
    else:
        if done.returncode:
            print(f"browser: failed: {(done.stdout.strip().splitlines() or ['no output'])[-1]}", flush=True)


def main() -> int:
    """Print the version of the browser. If no browser starts, print what to install and return 1."""
    version = _version()
    for install in (_download, _install_package):
        if version is None and not os.environ.get("CHROMIUM"):
            install()
            version = _version()
    print(f"browser: chromium {version}" if version else f"browser: {MISSING}", file=None if version else sys.stderr)
    return 0 if version else 1


if __name__ == "__main__":
    sys.exit(main())
