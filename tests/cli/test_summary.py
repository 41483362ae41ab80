"""perfkit summary: choosing, sorting and shortening tables, the JSON format, and one-line errors. The outputs of
commands are in ``tests/golden/cli``."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

import perfkit_core
from perfkit_core.cli.summary import _minimum
from perfkit_core.errors import UsageError
from perfkit_core.output.report.summary import choose_views
from perfkit_core.trace.model.trace import with_rank
from perfkit_core.trace.storage.store import write_cycle
from tests.support.paths import DATA
from tests.support.small_trace import small_trace

pytestmark = pytest.mark.bare


def test_tables_in_text(transcript, run: Path) -> None:
    """Warnings come first, then the default views. Rows are sorted by device time. fw::matmul has 2 calls of 5 ms each,
    and fw::add takes 2 ms in total. People who read a comparison try the names of its tables."""
    views = "summary run --view phases,step_parts,quality"
    transcript("summary-limit", "summary run --limit 2", "summary run --view kernels,memcpy --limit 1")
    transcript("summary", "summary run", "summary run --view overview --limit ' 2 '", "summary run --filter zzz", views)
    operators = "summary run --view operators --columns calls,total_cpu_ns,self_cpu_ns"
    options = ["--sort self_cpu_ns", "--sort self_cpu_ns --ascending", "--min total_cpu_ns=1e-2s"]
    lines = [f"{operators} {option}" for option in (*options, "--min total_cpu_ns=10001us")]
    shapes = "summary run --view operators --step 1 --filter mat --by shape --columns calls"
    transcript("summary-operators", *lines, shapes)


def test_a_grouping_of_one_view(transcript, tmp_path: Path) -> None:
    shutil.copy(DATA / "torch-mlp.json.gz", tmp_path)
    command = "summary torch-mlp.json.gz --view families,operators --limit 3 --columns calls --by"
    transcript("summary-by", *(f"{command} {by}" for by in ("phase", "families.phase", "families.shape")))


def test_json_has_exact_numbers_and_the_names_of_the_columns(perfkit, run: Path) -> None:
    content = json.loads(perfkit("summary", run, "--view", "operators,kernels", "--format", "json").out)
    assert content["source"] == str(run)
    assert {"code": "made-up", "message": "made by hand"} in content["quality"]
    assert list(content["views"]) == ["operators", "kernels"]
    add, outside, matmul = content["views"]["operators"]
    assert (outside["name"], outside["calls"]) == ("(launched outside operators)", None)
    assert (matmul["name"], matmul["calls"], matmul["self_cpu_ns"]) == ("fw::matmul", 2, 2 * (5_000_000 - 1_000_001))
    assert (add["total_cpu_ns"], add["total_device_ns"], add["op_name"]) == (2_000_002, 6_000_000, None)
    table = perfkit_core.summarize(run, "operators")
    assert list(matmul) == list(table.columns)


def test_json_names_every_source(perfkit, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_cycle(with_rank(small_trace(), 1), other)
    content = json.loads(perfkit("summary", run, other, "--format", "json").out)
    assert content["source"] == [str(run), str(other)]


def test_machines_get_all_rows_unless_they_ask(perfkit, run: Path) -> None:
    def rows(*more: str) -> int:
        out = perfkit("summary", run, "--view", "overview", "--format", "csv", *more).out
        return len(pd.read_csv(io.StringIO(out)))

    assert rows() == rows("--limit", "0") > 2
    assert rows("--limit", "2") == 2


@pytest.mark.parametrize(
    ("text", "least"),
    [("calls=10", 10), ("flops=1e6", 10**6), ("flops=1.5E+3", 1500), ("flops=100M", 10**8), ("calls=2K", 2000),
     ("flops=3 T", 3 * 10**12), ("flops=.5G", 5 * 10**8), ("bytes=1_000", 1000), ("bytes=2MiB", 2**21),
     ("bytes=2MB", 2 * 10**6), ("total_cpu_ns=1.5ms", 1_500_000), ("x_ns=1e-3s", 10**6), ("self_cpu_ratio=5%", 0.05),
     ("growth_bytes=-4KB", -4000)],
)  # fmt: skip
def test_a_minimum_may_have_an_exponent_and_a_unit(text: str, least: float) -> None:
    assert _minimum(text, choose_views(["all"])) == (text.split("=")[0], pytest.approx(least, rel=1e-12))


def test_mistakes_are_one_line(transcript, run: Path, tmp_path: Path) -> None:
    minimums = ("calls", "calls=", "=1", "calls=x", "calls=1e", "a=nan", "flops=5Q", "'bytes=1 ZiB'")
    options = [f"--min {minimum}" for minimum in (*minimums, "'self_cpu_ns=5 MiB'")]
    options += ["--view nope", "--view operator", "--format nope", "--format html", "--sort nope", "--by nope"]
    options += ["--by shape --view kernels", "--step 9", "--step x", "--step 5-1", "--step 0-99999999999"]
    options += ["--filter '('", "--format csv", "--limit -1", "--nope"]
    contents = {
        "empty": b"",
        "brace": b"{",
        "gzip": b"\x1f\x8b\x00",
        "text": b"hello\n",
        "cut": b'{"traceEvents": [{"ph"',
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_bytes(content)
    (tmp_path / "file").write_text("", encoding="utf-8")
    files = [f"summary {name}.json" for name in (*contents, "none")]
    transcript("summary-mistakes", *(f"summary run {option}" for option in options), *files,
               "summary run -o file/out.txt", "summary none.json -o new/x.txt")  # fmt: skip
    assert not (tmp_path / "new").exists()


def test_output_goes_to_a_file_in_a_new_folder(perfkit, run: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "deep" / "out.json"
    assert perfkit("summary", run, "--format", "json", "-o", target) == (0, "", "")
    assert json.loads(target.read_text(encoding="utf-8"))["views"]
    assert list(target.parent.iterdir()) == [target], "no temporary file stays"


@pytest.mark.parametrize(
    ("name", "begins"), [("o.json", "{"), ("o.csv", "name,"), ("o.md", "# "), ("o.html", "<!"), ("o.txt", "base: ")]
)
def test_the_name_of_the_output_tells_the_format(perfkit, run: Path, tmp_path: Path, name: str, begins: str) -> None:
    """The suffix selects the format, but an explicit --format takes precedence."""
    path = tmp_path / name
    assert perfkit("compare", run, run, "--view", "operators", "-o", path).code == 0
    written = path.read_text(encoding="utf-8").lower()
    assert begins in written[:200]
    assert perfkit("compare", run, run, "--view", "operators", "--format", "json", "-o", path).code == 0
    assert json.loads(path.read_text(encoding="utf-8"))["views"]["operators"]


@pytest.mark.parametrize("name", ["o.xlsx", "o.pdf", "O.PNG"])
@pytest.mark.parametrize("command", ["summary", "compare", "runs", "report", "export"])
def test_a_suffix_that_is_no_format_is_refused(perfkit, run: Path, tmp_path: Path, command: str, name: str) -> None:
    path = tmp_path / "out" / name
    code, out, err = perfkit(command, *[run] * (2 if command == "compare" else 1), "-o", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert ".json" in err or "name that ends in .html" in err
    assert str(path) in err
    assert not path.parent.exists()


@pytest.mark.parametrize("name", ["o", "o.txt", "o.log", "O.TXT"])
def test_text_goes_to_files_that_are_named_so(perfkit, run: Path, tmp_path: Path, name: str) -> None:
    assert perfkit("summary", run, "-o", tmp_path / name) == (0, "", "")
    assert (tmp_path / name).read_text(encoding="utf-8") == perfkit("summary", run).out


def test_a_format_that_is_named_goes_to_any_file(perfkit, run: Path, tmp_path: Path) -> None:
    assert perfkit("summary", run, "--format", "json", "-o", tmp_path / "run.v2") == (0, "", "")
    assert json.loads((tmp_path / "run.v2").read_text(encoding="utf-8"))["views"]


@pytest.mark.parametrize(
    ("command", "name"), [("summary", "o.txt"), ("compare", "o.txt"), ("runs", "o.txt"), ("report", "o.html"),
                          ("export", "o.json")],
)  # fmt: skip
def test_every_command_makes_the_folder_of_its_output(
    perfkit, run: Path, tmp_path: Path, command: str, name: str
) -> None:
    path = tmp_path / "new" / "deep" / name
    assert perfkit(command, *[run] * (2 if command == "compare" else 1), "-o", path).code == 0
    assert list(path.parent.iterdir()) == [path]


def test_summarize_from_python(run: Path) -> None:
    table = perfkit_core.summarize(run, "operators", by="thread", steps=[0], sort="calls", limit=1)
    assert len(table) == 1
    assert table["calls"].tolist() == [1]
    with pytest.raises(UsageError, match="known"):
        perfkit_core.summarize(run, "nope")
    with pytest.raises(UsageError, match="columns"):
        perfkit_core.summarize(run, "operators", sort="nope")


@pytest.mark.parametrize("command", ["summary", "report", "advise", "export"])
@pytest.mark.parametrize(
    ("place", "why"), [("", "Is a directory"), ("file/x.html", "Not a directory"), ("file/a/x.html", "Not a directory")]
)
def test_an_unwritable_output_fails_before_anything_is_read(
    perfkit, tmp_path: Path, command: str, place: str, why: str
) -> None:
    (tmp_path / "file").touch()
    to = tmp_path / place
    code, _, err = perfkit(command, "nowhere.json", "-o", to)
    assert code == 2
    assert err == f"perfkit: error: {to}: cannot be written ({why}); choose another path with -o\n"


def test_other_names_of_views(perfkit, run: Path) -> None:
    assert perfkit("compare", run, run, "--view", "model") == perfkit("compare", run, run, "--view", "phases")
