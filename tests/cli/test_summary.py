"""perfkit summary: choosing, sorting and shortening tables, the JSON format, and one-line errors."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import pytest

import perfkit_core
from perfkit_core.cli.summary import _minimum
from perfkit_core.errors import UsageError
from perfkit_core.output.report.summary import choose_views
from perfkit_core.trace.model.trace import with_rank
from perfkit_core.trace.storage.store import write_cycle
from tests.support.small_trace import small_trace

pytestmark = pytest.mark.bare


def test_default_views_in_text(perfkit, run: Path) -> None:
    code, out, err = perfkit("summary", run)
    assert (code, err) == (0, "")
    titles = ("Step time by category", "Phases", "Operators", "Kernels")
    assert [title for title in titles if title in out] == [*titles[:3]]
    assert out.index("Data quality") < out.index(titles[0])
    assert "\x1b" not in out


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


def test_people_are_told_how_many_rows_are_left_out(perfkit, run: Path) -> None:
    assert "more rows (--limit 0 shows all)" in perfkit("summary", run, "--limit", "2").out
    assert "more row" not in perfkit("summary", run, "--limit", "0").out


def test_sort_and_ascending(perfkit, run: Path) -> None:
    def names(*more: str) -> list[str]:
        out = perfkit("summary", run, "--view", "operators", "--format", "csv", *more).out
        names: list[str] = pd.read_csv(io.StringIO(out))["name"].tolist()
        return [name for name in names if not name.startswith("(")]

    assert names() == ["fw::add", "fw::matmul"], "by device time"
    assert names("--sort", "self_cpu_ns") == ["fw::matmul", "fw::add"]
    assert names("--sort", "self_cpu_ns", "--ascending") == ["fw::add", "fw::matmul"]


def test_step_filter_and_by(perfkit, run: Path) -> None:
    arguments = ("--view", "operators", "--step", "1", "--filter", "mat", "--by", "shape", "--format", "json")
    content = json.loads(perfkit("summary", run, *arguments).out)
    (row,) = content["views"]["operators"]
    assert (row["name"], row["calls"], row["shapes"]) == ("fw::matmul", 1, "[[2, 3], [3, 4]]")


@pytest.mark.parametrize(
    ("text", "least"),
    [("calls=10", 10), ("flops=1e6", 10**6), ("flops=1.5E+3", 1500), ("flops=100M", 10**8), ("calls=2K", 2000),
     ("flops=3 T", 3 * 10**12), ("flops=.5G", 5 * 10**8), ("bytes=1_000", 1000), ("bytes=2MiB", 2**21),
     ("bytes=2MB", 2 * 10**6), ("total_cpu_ns=1.5ms", 1_500_000), ("x_ns=1e-3s", 10**6), ("self_cpu_ratio=5%", 0.05),
     ("growth_bytes=-4KB", -4000)],
)  # fmt: skip
def test_a_minimum_may_have_an_exponent_and_a_unit(text: str, least: float) -> None:
    assert _minimum(text, choose_views(["all"])) == (text.split("=")[0], pytest.approx(least, rel=1e-12))


def test_a_minimum_in_a_command(perfkit, run: Path) -> None:
    """fw::matmul has 2 calls of 5 ms each, and fw::add takes 2 ms in total."""
    arguments = ("--view", "operators", "--columns", "total_cpu_ns", "--format", "csv", "--min")
    for least in ("total_cpu_ns=1e-2s", "total_cpu_ns=10M", "total_cpu_ns=10000us"):
        assert perfkit("summary", run, *arguments, least).out.splitlines()[1:] == ["fw::matmul,10000000"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("calls", "--min 'calls' is not COLUMN=VALUE; example: --min flops=1e6"),
        ("calls=", "--min 'calls=' is not COLUMN=VALUE; example: --min flops=1e6"),
        ("=1", "--min '=1' is not COLUMN=VALUE; example: --min flops=1e6"),
        ("calls=x", "--min calls: 'x' is not a number; example: 1.5 M; units: K, M, G, T"),
        ("calls=1e", "--min calls: '1e' is not a number; example: 1.5 M; units: K, M, G, T"),
        ("a=nan", "--min a: 'nan' is not a number; example: 1.5 M; units: K, M, G, T"),
        ("flops=5Q", "--min flops: '5Q' is not a number of operations; example: 4 GFLOP; units: FLOP, kFLOP, "
         "MFLOP, GFLOP, TFLOP, PFLOP, K, M, G, T"),
        ("bytes=1 ZiB", "--min bytes: '1 ZiB' is not a size; example: 64 MiB; units: B, KiB, MiB, GiB, TiB, KB, "
         "MB, GB, TB, K, M, G, T"),
        ("self_cpu_ns=5 MiB", "--min self_cpu_ns: '5 MiB' is not a duration; example: 20 ms; units: ns, µs, ms, "
         "s, us, K, M, G, T"),
    ],
)  # fmt: skip
def test_no_minimum_is_one_line_that_lists_the_units(perfkit, run: Path, text: str, told: str) -> None:
    assert perfkit("summary", run, "--min", text) == (2, "", f"perfkit: error: {told}\n")


def test_a_filter_without_matches_says_so(perfkit, run: Path) -> None:
    out = perfkit("summary", run, "--filter", "zzz").out
    assert "No events match --step, --filter, --kind and --device." in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--view", "nope"], "known: steps, partition"),
        (["--view", "operator"], "did you mean operators or operator_tree? known: steps, partition"),
        (["--format", "nope"], "known: text, markdown, json, csv"),
        (["--format", "html"], "use perfkit report for HTML"),
        (["--sort", "nope"], "columns: category, steps, total_ns"),
        (["--by", "nope"], "known: step, rank, shape, stack, overload, thread"),
        (["--by", "shape", "--view", "kernels"], "kernels cannot be grouped by 'shape'"),
        (["--step", "9"], "recorded steps: 0, 1"),
        (["--step", "x"], "--step 5"),
        (["--step", "5-1"], "--step 5-8"),
        (["--step", "0-99999999999"], "--step 5-8"),
        (["--filter", "("], "not a regular expression"),
        (["--format", "csv"], "choose a table with --view"),
        (["--limit", "-1"], "--limit '-1' is not a whole number of 0 or more; example: --limit 5"),
        (["--nope"], "No such option"),
    ],
)
def test_a_mistake_is_one_line(perfkit, run: Path, arguments: list[str], said: str) -> None:
    code, out, err = perfkit("summary", run, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("perfkit: error: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize("content", [b"", b"{", b"\x1f\x8b\x00", b"hello\n", b'{"traceEvents": [{"ph"'])
def test_a_bad_file_is_one_line(perfkit, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    code, out, err = perfkit("summary", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(path) in err
    assert "Traceback" not in err


def test_a_missing_file_is_one_line(perfkit, tmp_path: Path) -> None:
    code, _, err = perfkit("summary", tmp_path / "none")
    assert (code, err.count("\n")) == (2, 1)
    assert "no such file" in err


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


def test_an_unwritable_output_is_one_line(perfkit, run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    code, _, err = perfkit("summary", run, "-o", tmp_path / "file" / "out.txt")
    assert (code, err.count("\n")) == (2, 1)
    assert "cannot be written" in err


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


def test_checking_an_output_leaves_no_file(perfkit, tmp_path: Path) -> None:
    assert "no such file" in perfkit("summary", "nowhere.json", "-o", tmp_path / "new" / "x.txt").err
    assert list(tmp_path.iterdir()) == []


def test_other_names_of_views(perfkit, run: Path) -> None:
    """People who read a comparison try the names of its tables."""
    for name, view in (("phases", "model"), ("step_parts", "partition"), ("quality", "findings")):
        assert perfkit("summary", run, "--view", name) == perfkit("summary", run, "--view", view)
    assert perfkit("compare", run, run, "--view", "model") == perfkit("compare", run, run, "--view", "phases")
    assert "made-up warning made by hand" in perfkit("summary", run, "--view", "findings").words
