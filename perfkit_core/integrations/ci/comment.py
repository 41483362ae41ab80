"""``python -m perfkit_core.integrations.ci.comment FILE``: write a file into one comment on a pull request or merge
request.

A hidden mark in the comment finds it again, so a later run updates it. The service and the change are those of the
environment variables of the job: ``GITHUB_API_URL``, ``GITHUB_REPOSITORY`` and ``GITHUB_TOKEN`` of GitHub Actions, or
``CI_API_V4_URL``, ``CI_PROJECT_ID``, ``CI_MERGE_REQUEST_IID`` and ``GITLAB_TOKEN`` of GitLab.

If the comment cannot be written, for example because the token of a fork may only read, the text goes to the summary of
the job or to its log. This is no error: the exit code of ``perfkit compare`` decides whether the job fails."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from perfkit_core.base.system.outside_text import MOST_FILE_BYTES, decode_json, decode_utf8, read_file
from perfkit_core.base.system.paths import printable_line

MARK: Final = "<!-- perfkit: {} -->"
LONGEST: Final = 65_000
"""Maximum length of a comment in UTF-16 code units. GitHub accepts 65,536 characters."""
_CUT: Final = "The comment is too long. The rest is left out."
_PAGE: Final = 100
_ATTEMPTS: Final = 4
_LONGEST_WAIT_S: Final = 60.0
_TIMEOUT_S: Final = 30
_SUMMARY: Final = "GITHUB_STEP_SUMMARY"


class RefusedError(Exception):
    """The service does not accept the request. Repeating the request would not help. ``hint`` says what to do."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__("; ".join(filter(None, (reason, hint))))


class UnavailableError(Exception):
    """The service has failed for now. ``wait_s`` is the time after which the request may be repeated, if known."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True)
class Discussion:
    """The comments on a change. ``comments`` is their address. ``comment`` is the address of one of them, with ``{}``
    for its number. ``update`` is the HTTP method that changes a comment. ``user`` is the address of the token's user.
    ``permission`` says what the token needs. ``commit`` is the tested commit, None if it is unknown."""

    comments: str
    comment: str
    update: str
    user: str
    headers: Mapping[str, str]
    permission: str
    commit: str | None = None


def discussion(environment: Mapping[str, str]) -> Discussion:
    """Return the discussion of the change that this job tests. Raises RefusedError without a change or a token."""
    setting = environment.get
    if api := setting("GITHUB_API_URL"):
        (change, commit), token = _pull_request(setting("GITHUB_EVENT_PATH")), (setting("GITHUB_TOKEN") or "").strip()
        base = f"{api}/repos/{setting('GITHUB_REPOSITORY')}/issues"
        addresses = f"{base}/{change}/comments", f"{base}/comments/{{}}", "PATCH", f"{api}/user"
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
        variable, permission = "GITHUB_TOKEN", "give the job the permission pull-requests: write"
    elif api := setting("CI_API_V4_URL"):
        change, token = setting("CI_MERGE_REQUEST_IID"), (setting("GITLAB_TOKEN") or "").strip()
        variable, permission = "GITLAB_TOKEN", "use a project access token with the scope api"
        commit = setting("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or setting("CI_COMMIT_SHA")
        base = f"{api}/projects/{setting('CI_PROJECT_ID')}/merge_requests/{change}/notes"
        addresses, headers = (base, f"{base}/{{}}", "PUT", f"{api}/user"), {"PRIVATE-TOKEN": token}
    else:
        hint = "run this in a job of GitHub Actions or GitLab CI"
        raise RefusedError("neither GITHUB_API_URL nor CI_API_V4_URL is set", hint)
    if not change:
        raise RefusedError("this job does not test a pull request or merge request", "run it for these events")
    if not token:
        raise RefusedError(f"{variable} is not set", f"set it as a variable of the job; {permission}")
    if not token.isprintable() or not token.isascii():
        raise RefusedError(f"{variable} has characters that no token has", "copy the token again")
    headers |= {"Content-Type": "application/json", "User-Agent": "perfkit"}
    return Discussion(*addresses, headers, permission, commit)


def _pull_request(event: str | None) -> tuple[str | None, str | None]:
    """Return the number of the pull request in the file of the event, and its commit. Both may be None."""
    try:
        content = decode_json(read_file(Path(event))) if event else {}
        about_issue = content.get("issue") or {}
        change = content.get("pull_request") or (about_issue if "pull_request" in about_issue else {})
        number, commit = change.get("number"), (change.get("head") or {}).get("sha")
        if not isinstance(number, int | None) or not isinstance(commit, str | None):
            raise ValueError("its number or commit has the wrong type")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        hint = "GITHUB_EVENT_PATH must name the file that the runner wrote"
        raise RefusedError(f"{event}: not the event of a job ({error})", hint) from None
    return str(number) if number else None, commit


def publish(where: Discussion, text: str, key: str, wait: Callable[[float], None] = time.sleep) -> str:
    """Create the comment with this key, or update it. Return what was done. Raises RefusedError and UnavailableError.
    The comment ends with the commit, because it may be older than the last push.

    If the service fails, the comment is searched again before the next attempt, because it may exist already."""
    body = shortened(f"{MARK.format(key)}\n{text}")
    if where.commit:
        body += f"\nMeasured at commit {where.commit}.\n"
    for attempt in range(_ATTEMPTS - 1):
        try:
            return _publish(where, body, key)
        except UnavailableError as error:
            wait(min(2.0**attempt if error.wait_s is None else error.wait_s, _LONGEST_WAIT_S))
    return _publish(where, body, key)


def _publish(where: Discussion, text: str, key: str) -> str:
    mark, is_own = MARK.format(key), _ownership(where)
    for comment in _comments(where):
        body = str(comment.get("body") or "")
        if body.startswith(mark) and is_own(comment.get("user") or comment.get("author") or {}):
            if body.replace("\r\n", "\n") == text:
                return "the comment is up to date"
            _request(where, where.update, where.comment.format(comment["id"]), {"body": text})
            return "updated the comment"
    _request(where, "POST", where.comments, {"body": text})
    return "created a comment"


def _ownership(where: Discussion) -> Callable[[Mapping[str, Any]], bool]:
    """Return the function that checks whether the author of a comment is the user of the token. Anyone can write a
    comment with the mark. The token of GitHub Actions cannot ask for its user, which is a bot."""
    try:
        user = _request(where, "GET", where.user)["id"]
    except RefusedError:
        return lambda author: author.get("type") == "Bot"
    return lambda author: bool(author.get("id") == user)


def _comments(where: Discussion) -> Iterator[dict[str, Any]]:
    page, listed = 1, _PAGE
    while listed == _PAGE:
        comments = _request(where, "GET", f"{where.comments}?per_page={_PAGE}&page={page}")
        yield from comments
        page, listed = page + 1, len(comments)


def shortened(text: str) -> str:
    """Return the text, or its first paragraphs if it is too long. Folded parts that are cut get their end."""
    if _length(text) <= LONGEST:
        return text
    paragraphs: list[str] = []
    for paragraph in text.split("\n\n"):
        if _length("\n\n".join([*paragraphs, paragraph])) > LONGEST - 1000:
            break
        paragraphs.append(paragraph)
    cut = "\n\n".join(paragraphs)
    ends = ["</details>"] * (cut.count("<details>") - cut.count("</details>"))
    return "\n\n".join([cut, *ends, _CUT]) + "\n"


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects are errors: the token must not be sent to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _request(where: Discussion, method: str, address: str, content: Any = None) -> Any:
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(address, data, dict(where.headers), method=method)
    kind = list if method == "GET" and address.startswith(f"{where.comments}?") else dict
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S) as response:
            answer = decode_json(response.read(MOST_FILE_BYTES))
        if not isinstance(answer, kind):
            raise ValueError("an unexpected answer")
        return answer
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"{method} {address.partition('?')[0]}: {error.code} {error.reason}"
        wait_s = error.headers.get("Retry-After") or ""
        if error.code >= 500 or error.code == 429 or (error.code == 403 and wait_s):
            raise UnavailableError(reason, float(wait_s) if wait_s.isdecimal() else None) from None
        raise RefusedError(reason, where.permission if error.code in (401, 403, 404) else "") from None
    except (OSError, ValueError, http.client.HTTPException) as error:  # no connection, or an answer that is not JSON
        raise UnavailableError(f"{method} {address.partition('?')[0]}: {error}") from None


def fall_back(text: str, reason: str, environment: Mapping[str, str]) -> None:
    """Write the text into the summary of the job, or into its log if the service has no summaries."""
    summary = environment.get(_SUMMARY)
    written_to = "below"
    if summary:
        with contextlib.suppress(OSError), Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
            written_to = "the summary of the job"
    print(f"perfkit: no comment was written ({printable_line(reason)}); see {written_to}", file=sys.stderr)
    if written_to == "below":
        try:
            print(text, flush=True)
        except BrokenPipeError:  # the reader, such as head, has ended; Python would fail again when it exits
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m perfkit_core.integrations.ci.comment", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("file", type=Path, help="Markdown file, as perfkit compare --format markdown writes it.")
    parser.add_argument("--key", default="compare", help="Name of the comment, for changes with several comments.")
    options = parser.parse_args(arguments)
    if "--" in options.key or ">" in options.key:
        _end(f"--key {options.key!r} contains -- or >, which end a hidden mark; use letters, digits and -")
    try:
        text = decode_utf8(read_file(options.file))
    except (OSError, ValueError) as error:
        _end(f"{options.file}: cannot be read ({error}); write it with perfkit compare --format markdown -o FILE")
    try:
        print(f"perfkit: {publish(discussion(os.environ), text, options.key)}", file=sys.stderr)
    except (RefusedError, UnavailableError) as error:
        fall_back(text, str(error), os.environ)
    return 0


def _end(reason: str) -> NoReturn:
    print(f"perfkit: error: {printable_line(reason)}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(main())
