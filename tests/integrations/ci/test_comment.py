"""The comment on a change, against a local server that plays the comments of GitHub and of GitLab."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from perfkit_core.integrations.ci import comment
from tests.support.paths import ROOT

pytestmark = pytest.mark.bare
TOKEN = "secret-token"


class Service:
    """A server with the comments of one change. ``failures`` are answers to the next requests, instead of the usual."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.comments: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.failures: list[tuple[int, dict[str, str]] | None] = []
        self.read_only = False
        self.known_user = name == "gitlab"  # the token of GitHub Actions cannot ask for its user
        self.me = {"id": 41, "type": "Bot"}
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.answer(self)

            do_POST = do_PATCH = do_PUT = do_GET  # noqa: N815 (http.server calls these names)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        content = json.loads(request.rfile.read(int(request.headers.get("Content-Length") or 0)) or "null")
        url, method = urlsplit(request.path), request.command
        self.requests.append((method, url.path))
        if url.path == "/user":
            self.send(request, *((200, self.me) if self.known_user else (403, {})))
            return
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            self.send(request, failure[0], {"message": "no"}, failure[1])
            return
        github = self.name == "github"
        allowed = {"Authorization": f"Bearer {TOKEN}"} if github else {"PRIVATE-TOKEN": TOKEN}
        every = "/repos/people/model/issues/7/comments" if github else "/projects/12/merge_requests/7/notes"
        one = "/repos/people/model/issues/comments" if github else every
        if any(request.headers.get(name) != value for name, value in allowed.items()):
            self.send(request, 401, {})
        elif (method, url.path) == ("GET", every):
            asked = {name: int(value) for name, (value,) in parse_qs(url.query).items()}
            first = (asked["page"] - 1) * asked["per_page"]
            self.send(request, 200, self.comments[first : first + asked["per_page"]])
        elif self.read_only:
            self.send(request, 403, {"message": "Resource not accessible by integration"})
        elif (method, url.path) == ("POST", every):
            author = "user" if github else "author"
            self.comments.append({"id": 1000 + len(self.comments), author: self.me, **content})
            self.send(request, 201, self.comments[-1])
        elif method == ("PATCH" if github else "PUT") and url.path.rpartition("/")[0] == one:
            (found,) = (each for each in self.comments if each["id"] == int(url.path.rpartition("/")[2]))
            found.update(content)
            self.send(request, 200, found)
        else:
            self.send(request, 404, {})

    def send(
        self, request: BaseHTTPRequestHandler, code: int, content: Any, headers: dict[str, str] | None = None
    ) -> None:
        request.send_response(code)
        for name, value in (headers or {}).items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(json.dumps(content).encode())

    def environment(self, folder: Path) -> dict[str, str]:
        if self.name == "gitlab":
            return {
                "CI_API_V4_URL": self.address, "CI_PROJECT_ID": "12", "CI_MERGE_REQUEST_IID": "7",
                "GITLAB_TOKEN": TOKEN,
            }  # fmt: skip
        event = folder / "event.json"
        event.write_text(json.dumps({"pull_request": {"number": 7}}))
        return {
            "GITHUB_API_URL": self.address, "GITHUB_REPOSITORY": "people/model", "GITHUB_TOKEN": TOKEN,
            "GITHUB_EVENT_PATH": str(event), "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        }  # fmt: skip


@pytest.fixture(params=["github", "gitlab"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    service = Service(request.param)
    yield service
    service.server.shutdown()
    service.server.server_close()


def publish(service: Service, folder: Path, text: str = "result", key: str = "compare") -> str:
    return comment.publish(comment.discussion(service.environment(folder)), text, key, wait=lambda seconds: None)


def test_one_comment_is_created_and_then_updated(service: Service, tmp_path: Path) -> None:
    service.comments.append({"id": 1, "body": "I like it"})
    assert publish(service, tmp_path, "first") == "created a comment"
    assert publish(service, tmp_path, "second") == "updated the comment"
    assert publish(service, tmp_path, "second") == "the comment is up to date"
    assert publish(service, tmp_path, "other", key="nightly") == "created a comment"
    assert [each["body"] for each in service.comments] == [
        "I like it", "<!-- perfkit: compare -->\nsecond", "<!-- perfkit: nightly -->\nother",
    ]  # fmt: skip


def test_the_comment_is_found_on_a_later_page(service: Service, tmp_path: Path) -> None:
    """A quote of the comment, which begins with other text, is not the comment."""
    service.comments = [{"id": at, "body": f"> <!-- perfkit: compare -->\n{at}"} for at in range(200)]
    service.comments.append({"id": 200, "body": "<!-- perfkit: compare -->\r\nold", "user": service.me})
    service.comments += [{"id": at, "body": None} for at in range(201, 300)]
    assert publish(service, tmp_path) == "updated the comment"
    assert service.comments[200]["body"].endswith("\nresult")
    assert [method for method, _ in service.requests][:4] == ["GET"] * 4
    assert len(service.comments) == 300
    service.comments = [{"id": at, "body": "full pages only"} for at in range(200)]
    assert publish(service, tmp_path) == "created a comment"


@pytest.mark.parametrize("known_user", [True, False])
def test_the_comment_of_someone_else_stays(service: Service, known_user: bool, tmp_path: Path) -> None:
    service.known_user = known_user or service.name == "gitlab"  # every token of GitLab can ask for its user
    body, other = "<!-- perfkit: compare -->\nfaster, I promise", {"id": 13, "type": "User"}
    service.comments.append({"id": 1, "body": body, "user": other, "author": other})
    assert publish(service, tmp_path, "first") == "created a comment"
    assert publish(service, tmp_path, "second") == "updated the comment"
    assert [each["body"].partition("\n")[2] for each in service.comments] == ["faster, I promise", "second"]


@pytest.mark.parametrize("token", ["tok\nen", "t\u00f6ken", "\n"])
def test_a_token_is_never_printed(service: Service, token: str, tmp_path: Path) -> None:
    environment = service.environment(tmp_path)
    name = "GITHUB_TOKEN" if service.name == "github" else "GITLAB_TOKEN"
    with pytest.raises(comment.RefusedError) as raised:
        comment.discussion(environment | {name: token})
    assert not token.strip() or token not in str(raised.value)
    comment.discussion(environment | {name: f" {TOKEN}\n"})


@pytest.mark.parametrize(
    "event",
    ["not JSON", "[]", None, "[" * 100_000, "9" * 6000, '{"pull_request": {"number": {"a": 1}}}',
     '{"pull_request": {"number": 7, "head": {"sha": 5}}}', '{"pull_request": [7]}', '{"issue": 5}'],
)  # fmt: skip
def test_an_event_that_is_none_is_refused(event: str | None, tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    if event is not None:
        path.write_text(event)
    with pytest.raises(comment.RefusedError, match=r"event.json"):
        comment.discussion({"GITHUB_API_URL": "http://127.0.0.1:9", "GITHUB_EVENT_PATH": str(path)})


def test_a_failing_service_is_asked_again(service: Service, tmp_path: Path) -> None:
    waits: list[float] = []
    service.failures = [(502, {}), None, (503, {"Retry-After": "7"}), None, (429, {"Retry-After": "3600"})]
    done = comment.publish(comment.discussion(service.environment(tmp_path)), "result", "compare", waits.append)
    assert (done, waits) == ("created a comment", [1.0, 7.0, 60.0])
    assert len(service.comments) == 1


def test_a_comment_that_exists_after_a_failure_is_not_written_twice(service: Service, tmp_path: Path) -> None:
    """The server stored the comment, but its answer was lost."""

    def lost(seconds: float) -> None:
        mine = {"user": service.me, "author": service.me}
        service.comments.append({"id": 5, "body": "<!-- perfkit: compare -->\nresult", **mine})

    service.failures = [None, (500, {})]
    done = comment.publish(comment.discussion(service.environment(tmp_path)), "result", "compare", lost)
    assert (done, len(service.comments)) == ("the comment is up to date", 1)


def test_errors_are_named_and_do_not_show_the_token(service: Service, tmp_path: Path) -> None:
    where = comment.discussion(service.environment(tmp_path))
    service.failures = [(500, {})] * 4
    with pytest.raises(comment.UnavailableError, match="500") as error:
        comment.publish(where, "result", "compare", lambda seconds: None)
    assert TOKEN not in str(error.value)
    service.failures = [(302, {"Location": "http://127.0.0.1:9/stolen"})]
    with pytest.raises(comment.RefusedError, match="302"):
        comment.publish(where, "result", "compare", lambda seconds: None)
    service.failures = [(404, {})]
    with pytest.raises(comment.RefusedError, match="404"):
        comment.publish(where, "result", "compare", lambda seconds: None)


def run(folder: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfkit_core.integrations.ci.comment", *arguments]
    return subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT), **environment}, capture_output=True, text=True
    )


def test_a_token_that_may_only_read_is_no_error(service: Service, tmp_path: Path) -> None:
    """This is the token of a pull request from a fork. The result is in the summary of the job, or in its log."""
    service.read_only = True
    (tmp_path / "comment.md").write_text("### result — 1 µs\n")
    (tmp_path / "summary.md").write_text("before\n")
    done = run(tmp_path, service.environment(tmp_path), "comment.md")
    assert (done.returncode, service.comments) == (0, [])
    assert "no comment was written (POST http://127.0.0.1:" in done.stderr
    assert ": 403 Forbidden; " in done.stderr
    permission = {"github": "pull-requests: write", "gitlab": "the scope api"}[service.name]
    assert f"{permission}); see " in done.stderr
    summary = (tmp_path / "summary.md").read_text()
    if service.name == "github":
        assert (summary, done.stdout) == ("before\n### result — 1 µs\n", "")
    else:
        assert done.stdout == "### result — 1 µs\n\n"


def test_the_commit_is_named(service: Service, tmp_path: Path) -> None:
    """The comment is updated after each push, so it says which commit it describes, also if the text is cut."""
    environment, commit = service.environment(tmp_path), "0123456789abcdef0123456789abcdef01234567"
    (tmp_path / "event.json").write_text(json.dumps({"pull_request": {"number": 7, "head": {"sha": commit}}}))
    where = comment.discussion(environment | {"CI_COMMIT_SHA": commit})
    comment.publish(where, "result\n", "compare")
    assert service.comments[0]["body"] == f"<!-- perfkit: compare -->\nresult\n\nMeasured at commit {commit}.\n"
    comment.publish(where, "word\n\n" * 30_000, "compare")
    assert service.comments[0]["body"].endswith(f"left out.\n\nMeasured at commit {commit}.\n")
    assert comment.publish(where, "word\n\n" * 30_000, "compare") == "the comment is up to date"


def test_a_reader_that_ends_early_is_no_error(tmp_path: Path) -> None:
    """``| head -1`` closes the pipe before the text is complete."""
    (tmp_path / "comment.md").write_text("line\n" * 100_000)
    command = f"{sys.executable} -m perfkit_core.integrations.ci.comment comment.md | head -1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (0, "line\n", False)


def test_the_command(service: Service, tmp_path: Path) -> None:
    (tmp_path / "comment.md").write_text("### result\n")
    done = run(tmp_path, service.environment(tmp_path), "comment.md", "--key", "gpu")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "perfkit: created a comment\n")
    assert service.comments[0]["body"] == "<!-- perfkit: gpu -->\n### result\n"
    assert run(tmp_path, {}, "missing.md").returncode == 2
    assert run(tmp_path, {}, "comment.md", "--key", "a --> b").returncode == 2


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({}, "neither GITHUB_API_URL nor CI_API_V4_URL is set"),
        ({"CI_API_V4_URL": "http://a", "GITLAB_TOKEN": "t"}, "does not test a pull request or merge request"),
        ({"CI_API_V4_URL": "http://a", "CI_MERGE_REQUEST_IID": "1"}, "GITLAB_TOKEN is not set"),
        ({"GITHUB_API_URL": "http://a", "GITHUB_TOKEN": "t"}, "does not test a pull request or merge request"),
    ],
)
def test_a_job_without_a_change_prints_the_result(environment: dict[str, str], reason: str, tmp_path: Path) -> None:
    (tmp_path / "comment.md").write_text("### result\n")
    done = run(tmp_path, environment, "comment.md")
    assert (done.returncode, done.stdout) == (0, "### result\n\n")
    assert reason in done.stderr


def test_a_long_text_is_cut_between_paragraphs() -> None:
    paragraph = "<details><summary>🚀</summary>\n\n" + "🚀" * 300 + "\n\n</details>"
    cut = comment.shortened("\n\n".join([paragraph] * 200))
    assert len(cut.encode("utf-16-le")) // 2 <= comment.LONGEST
    assert cut.count("<details>") == cut.count("</details>") > 50
    assert cut.endswith("The comment is too long. The rest is left out.\n")
    assert comment.shortened("x" * 10**6) == "\n\nThe comment is too long. The rest is left out.\n"


def test_only_the_standard_library_is_imported() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules); "
        "import perfkit_core.integrations.ci.comment; "
        "print(*{name.partition('.')[0] for name in sys.modules.keys() - before} - sys.stdlib_module_names)"
    )
    done = subprocess.run([sys.executable, "-Ic", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["perfkit_core"]
