"""The ranks of files, and the reduction of ranks in this process, in several processes, on a cluster and in shards. All
ways give the same tables."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

import perfkit_core
from perfkit_core.errors import SourceError, UsageError
from perfkit_core.output.report.summary import choose_views
from perfkit_core.pages.profile import run_report
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.ranks import files, reduce
from perfkit_core.ranks import run as running
from perfkit_core.ranks.plan import Job, RankFiles, plan
from perfkit_core.ranks.profile import Computed, LoadedProfile, PerRankProfile, merge, opened
from perfkit_core.ranks.run import Serial, executor, run
from perfkit_core.readers.join_ranks import rank_of_name
from perfkit_core.readers.load import load
from perfkit_core.readers.read_options import ReadOptions
from perfkit_core.trace.model.trace import with_rank
from perfkit_core.trace.storage.store import write_cycle
from perfkit_core.views.merging import table_of
from tests.support import chrome, extreme
from tests.support.paths import DATA
from tests.support.rank_files import write_ranks
from tests.support.rendered import rendered
from tests.support.small_trace import small_trace

VIEWS = (
    "steps",
    "partition",
    "step_trace",
    "model",
    "overview",
    "operators",
    "operator_tree",
    "kernels",
    "memcpy",
    "device",
)
JOB = Job(VIEWS, ViewRequest())


def written(folder: Path, name: str, rank: int | None = None, start: int = 0, step: int | None = None) -> Path:
    """Write a file with an operator of 10 µs, in a step of 20 µs if a step is requested."""
    folder.mkdir(parents=True, exist_ok=True)
    place = {} if rank is None else {"distributedInfo": {"backend": "nccl", "pg": [{"ranks": [7]}], "rank": rank}}
    events = [chrome.event("aten::mm", start, 10)]
    if step is not None:
        events.append(chrome.event(f"ProfilerStep#{step}", start, 20, cat="user_annotation"))
    return chrome.write(folder / name, events, **place)


def planned(*sources: Path) -> list[tuple[int | None, list[str]]]:
    return [(one.rank, [Path(path).name for path in one.paths]) for one in plan(sources).ranks]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.json", 0), ("rank-3.json.gz", 3), ("worker_12.1699.pt.trace.json", 12), ("run7_rank00010.json", 10),
        ("Rank2-cycle1.json", 2), ("host_123.1699.pt.trace.json", None), ("frank3.json", None), ("trace.json", None),
        ("rank0-worker1.json", None), ("gpu3.json", None),
    ],
)  # fmt: skip
def test_the_rank_in_a_file_name(name: str, rank: int | None) -> None:
    assert rank_of_name(f"runs/rank9/{name}") == rank


def test_a_file_knows_its_rank_better_than_its_name(tmp_path: Path) -> None:
    written(tmp_path, "rank0.json", rank=5)
    written(tmp_path, "rank1.json.gz", rank=4)
    assert planned(tmp_path) == [(4, ["rank1.json.gz"]), (5, ["rank0.json"])]


def test_names_give_ranks_if_files_do_not_and_sort_as_numbers(tmp_path: Path) -> None:
    for rank in (10, 2, 0):
        written(tmp_path, f"rank{rank}.json", start=rank)
    assert planned(tmp_path) == [(0, ["rank0.json"]), (2, ["rank2.json"]), (10, ["rank10.json"])]
    found = load(tmp_path)
    assert found.meta.ranks == (0, 2, 10)
    (finding,) = (finding for finding in found.quality if finding.code == "ranks-by-name")
    assert finding.message == "3 sources do not state their rank; the ranks are taken from the file names"
    assert "ranks-by-name" in {finding.code for finding in computed(tmp_path).quality}


def test_ranks_are_numbered_by_order_as_a_last_resort(tmp_path: Path) -> None:
    for number in (10, 9):
        written(tmp_path, f"host_{number}.json", start=number)
    assert planned(tmp_path) == [(0, ["host_9.json"]), (1, ["host_10.json"])]
    assert {finding.code for finding in computed(tmp_path).quality} >= {"ranks-by-order"}


def test_several_files_of_a_rank_are_its_cycles(tmp_path: Path) -> None:
    for rank in (0, 1):
        for step in (2, 1):
            written(tmp_path, f"host_{rank}{step}.json", rank, 1000 * step, step)
    assert planned(tmp_path) == [(0, ["host_01.json", "host_02.json"]), (1, ["host_11.json", "host_12.json"])]
    assert computed(tmp_path, "steps").tables["steps"][["rank", "step"]].to_numpy().tolist() == [
        [0, 1], [0, 2], [1, 1], [1, 2]
    ]  # fmt: skip


def test_cycles_that_hold_the_same_steps_are_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        written(tmp_path, name, rank=0, step=1)
    written(tmp_path, "c.json", rank=1, step=1)
    with pytest.raises(SourceError, match="same steps of the same rank"):
        computed(tmp_path)


def test_files_that_are_no_profiles_are_left_out_and_named(tmp_path: Path) -> None:
    written(tmp_path, "rank0.json", rank=0)
    written(tmp_path, "rank1.json", rank=1)
    (tmp_path / "config.json").write_text('{"lr": 1}')
    (tmp_path / "notes.txt").write_text("lr")
    found = computed(tmp_path)
    assert found.meta.ranks == (0, 1)
    (finding,) = (finding for finding in found.quality if finding.code == "files-left-out")
    assert "config.json" in finding.message
    assert "notes" not in finding.message


def test_a_run_folder_is_planned_by_its_metadata(tmp_path: Path) -> None:
    for rank in (1, 0):
        write_cycle(with_rank(small_trace(), rank), tmp_path)
    assert [one.rank for one in plan([tmp_path]).ranks] == [0, 1]
    same(computed(tmp_path), LoadedProfile(load(tmp_path)).compute(choose_views(VIEWS), ViewRequest()))


def test_a_file_of_several_ranks_is_reduced_rank_by_rank(tmp_path: Path) -> None:
    many = load([DATA / "torch-mlp.json.gz", shutil.copy(DATA / "torch-mlp.json.gz", tmp_path / "again.json.gz")])
    write_cycle(many, tmp_path / "run")
    found = computed(tmp_path / "run", "steps", "operators")
    assert sorted(set(found.tables["steps"]["rank"])) == [0, 1]
    one = perfkit_core.summarize(DATA / "torch-mlp.json.gz", "operators").set_index("name")["total_cpu_ns"]
    both = found.tables["operators"].set_index("name")["total_cpu_ns"]
    assert (both[one.index] == 2 * one).all()


def test_a_repeated_rank_is_refused_even_if_no_head_names_it(tmp_path: Path) -> None:
    paths = [str(written(tmp_path, f"{name}.json", rank=3)) for name in ("a", "b")]
    partials, _ = run(Serial(), plan([written(tmp_path / "c", "x.json", rank=1)]), JOB)
    for path in paths:
        partials += run(Serial(), _plan_of(path), JOB)[0]
    with pytest.raises(SourceError, match=r"a\.json and .*b\.json both contain rank 3"):
        merge(partials, choose_views(VIEWS), JOB)


def _plan_of(path: str) -> object:
    from perfkit_core.ranks.plan import Plan

    return Plan(path, (RankFiles((path,), 0),))


def test_steps_that_one_rank_lacks_are_those_of_the_others(tmp_path: Path) -> None:
    written(tmp_path, "a.json", rank=0, step=1)
    written(tmp_path, "b.json", rank=1, step=2)
    views = choose_views(["steps"])
    found = opened([tmp_path]).compute(views, ViewRequest(steps=(2,)))
    assert found.tables["steps"]["rank"].tolist() == [1]
    with pytest.raises(UsageError, match="step 7 was not recorded; recorded steps: 1, 2"):
        opened([tmp_path]).compute(views, ViewRequest(steps=(7,)))


def test_a_rank_that_cannot_be_read_is_named_or_left_out(tmp_path: Path) -> None:
    for rank in (0, 1, 2):
        written(tmp_path, f"rank{rank}.json", rank)
    (tmp_path / "rank1.json").write_bytes(b"")
    with pytest.raises(SourceError, match=r"rank1\.json: the file is empty"):
        computed(tmp_path)
    found = opened([tmp_path], ReadOptions(partial=True)).compute(choose_views(VIEWS), ViewRequest())
    assert found.meta.ranks == (0, 2)
    (finding,) = (finding for finding in found.quality if finding.code == "ranks-left-out")
    assert finding.message.startswith("1 of 3 ranks could not be read")


def test_if_no_rank_can_be_read_the_first_is_named(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_bytes(b"")
    with pytest.raises(SourceError, match=r"rank0\.json: the file is empty"):
        opened([tmp_path], ReadOptions(partial=True)).compute(choose_views(VIEWS), ViewRequest())
    with pytest.raises(SourceError, match=r"rank0\.json: the file is empty"):
        load(tmp_path, partial=True)


def test_an_invalid_request_is_reported_once(tmp_path: Path) -> None:
    for rank in (0, 1):
        written(tmp_path, f"rank{rank}.json", rank)
    with pytest.raises(UsageError, match="not a regular expression"):
        opened([tmp_path], ReadOptions(partial=True)).compute(choose_views(["operators"]), ViewRequest(pattern="("))


def test_an_average_is_over_the_steps_of_all_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        for step in (1, 2):
            written(tmp_path, f"{rank}{step}.json", rank, 100 * step, step)
    table = perfkit_core.summarize(tmp_path, "operators", average=True)
    assert table[["calls", "total_cpu_ns"]].to_numpy().tolist() == [[2, 20_000]]  # 4 calls of 10 µs in 2 steps


@pytest.fixture(scope="module")
def many(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return ten ranks: eight real ranks, and two of them again with other clocks and numbers."""
    folder = tmp_path_factory.mktemp("many")
    write_ranks(sorted((traces / "torch" / "dlrm-8xv100").glob("rank*.json")), 10, folder)
    return folder


@pytest.fixture(scope="module")
def serial(many: Path) -> Computed:
    return computed(many)


def test_read_one_by_one_is_read_at_once(many: Path, serial: Computed) -> None:
    assert serial.meta.ranks == tuple(range(10))
    whole = load(many)
    for view in choose_views(VIEWS):
        table = table_of(view, whole, ViewRequest())
        first = [name for name in ("rank", "step", "name", "depth", "kind") if name in table]
        pd.testing.assert_frame_equal(
            *(_sorted(each, first) for each in (serial.tables[view.name], table)), check_exact=False, rtol=1e-12
        )


def test_threads_give_the_serial_result(many: Path, serial: Computed) -> None:
    with ThreadPoolExecutor(2) as pool:
        same(_on(pool, many), serial)


def test_processes_give_the_serial_result(many: Path, serial: Computed) -> None:
    with executor(2) as pool:
        same(_on(pool, many), serial)


def test_on_a_cluster_of_dask(many: Path, serial: Computed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "CONNECT_SECONDS", 120)  # a busy machine must not fail the test
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'perfkit[scale]'")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", local_directory=str(tmp_path)
        ) as cluster,
        executor(scheduler=cluster.scheduler_address) as pool,
    ):
        same(_on(pool, many), serial)


def test_merged_shards_give_the_serial_result(many: Path, serial: Computed, tmp_path: Path) -> None:
    """Separate jobs write partials to files, which are merged."""
    paths = []
    for number in (1, 2, 3):
        mine = plan([many]).share(number, 3)
        partials, failed = run(Serial(), mine, JOB)
        assert not failed
        count = len(plan([many]).ranks)
        stored = files.Stored(files.FORMAT, files.VERSION, str(many), count, (number, 3), JOB, (), tuple(partials), {})
        paths.append(tmp_path / f"{number}{files.SUFFIX}")
        files.write(stored, paths[-1])
    same(opened(paths[::-1]).compute(choose_views(VIEWS), ViewRequest()), serial)


def test_no_scheduler_is_one_line() -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'perfkit[scale]'")
    with (
        pytest.raises(UsageError, match=r"^no Dask scheduler answers at tcp://127\.0\.0\.1:9 "),
        executor(scheduler="tcp://127.0.0.1:9"),
    ):
        pass


@pytest.mark.parametrize(
    ("greeting", "reason", "seconds"),
    [
        (b"", "no answer within the time limit", 1),
        (b"220 mail.example.org ESMTP ready\r\n" * 9, "speaks another protocol", 60),
    ],
    ids=["silent", "another-protocol"],
)
def test_an_address_of_another_service_is_one_line(
    greeting: bytes, reason: str, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service accepts connections, but is not Dask. The command must not hang or allocate much memory."""
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'perfkit[scale]'")
    monkeypatch.setattr(running, "CONNECT_SECONDS", seconds)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_greet, args=(server, greeting), daemon=True).start()
        address = "tcp://{}:{}".format(*server.getsockname())
        with (
            pytest.raises(UsageError, match=rf"^no Dask scheduler answers at {address} \(.*{reason}"),
            executor(scheduler=address),
        ):
            pass


def test_a_scheduler_without_workers_is_one_line(many: Path) -> None:
    """The scheduler runs in a process of its own, as Dask leaves threads and objects behind in its process."""
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'perfkit[scale]'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    start = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    scheduler = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _await(port)
        command = [sys.executable, "-m", "perfkit", "summary", str(many), "--scheduler", address]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=600)
    finally:
        scheduler.kill()
        scheduler.wait()
    assert done.returncode == 2
    assert f"the Dask scheduler at {address} has no workers" in done.stderr
    assert f"start one with: dask worker {address}" in done.stderr


def _await(port: int) -> None:
    last = time.monotonic() + 300
    while time.monotonic() < last:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise AssertionError("the scheduler did not start")


def _greet(server: socket.socket, greeting: bytes) -> None:
    with contextlib.ExitStack() as held, contextlib.suppress(OSError):
        while True:
            held.enter_context(server.accept()[0]).sendall(greeting)


def test_a_page_of_many_ranks_is_one_of_one_trace(many: Path) -> None:
    """Headline, facts and tables equal those of a page of all ranks in one trace. Advice and charts of single events
    are missing."""
    found, whole = run_report(opened([many])), run_report(load(many))
    assert rendered(found.headline)
    assert rendered(found.headline) == tuple(line for line in rendered(whole.headline) if not line[0].isdigit())
    assert found.sources[0].facts == whole.sources[0].facts
    assert found.title == f"Profile of {many.name}"
    tables, advice = ([s for s in found.sections if s.name.startswith("advice") is told] for told in (False, True))
    of_one = [s.name for s in whole.sections if not s.name.startswith("advice")]
    of_events = ("timeline", "memory_curve", "memory_category_curve")
    assert [s.name for s in tables] == [name for name in of_one if name not in of_events]
    (elsewhere,) = advice
    assert "perfkit advise" in f"{elsewhere.note} {elsewhere.empty} {' '.join(rendered(elsewhere.lines))}"


def test_one_rank_is_read_as_a_whole(tmp_path: Path) -> None:
    assert isinstance(opened([written(tmp_path, "rank3.json", rank=3)]), LoadedProfile)
    written(tmp_path, "rank4.json", rank=4)
    assert isinstance(opened([tmp_path]), PerRankProfile)


def computed(source: Path, *views: str) -> Computed:
    return opened([source]).compute(choose_views(views or VIEWS), ViewRequest())


def _on(pool: Executor, folder: Path) -> Computed:
    partials, failed = run(pool, plan([folder]), JOB)
    assert not failed
    return merge(partials, choose_views(VIEWS), JOB)


def same(found: Computed, expected: Computed) -> None:
    assert found.meta.ranks == expected.meta.ranks
    assert found.steps == expected.steps
    for name, table in expected.tables.items():
        pd.testing.assert_frame_equal(found.tables[name], table, check_exact=True)


def _sorted(table: pd.DataFrame, first: list[str]) -> pd.DataFrame:
    found = table.copy()
    for name in _objects(found):
        found[name] = found[name].where(found[name].notna(), pd.NA)
    keys = [*first, *(name for name in map(str, found.columns) if name not in first)]
    order = found[keys].astype("string").fillna("~").sort_values(keys, kind="stable").index
    return found.loc[order].reset_index(drop=True)


def _objects(table: pd.DataFrame) -> Iterator[str]:
    yield from (str(name) for name in table.columns if table[name].dtype == object)


def test_many_ranks_of_one_trace_share_its_memory() -> None:
    """Each rank once held arrays as long as the trace, so 10,000 ranks took 10,000 times its memory."""
    trace = extreme.steps(1, ranks=2000).with_meta(ranks=tuple(range(2000)))
    shared = trace.events.column("start_ns").chunk(0).buffers()[1]
    traces = reduce.split(trace)
    assert [part.meta.ranks for part in traces] == [(rank,) for rank in range(2000)]
    for part in traces[::100]:
        assert len(part) == 8
        assert part.ints("parent").tolist() == [-1, 0, 1, 0, 3, 3, -1, -1]
        assert part.ints("launched_by").tolist() == [-1, -1, -1, -1, -1, -1, 5, 5]
        assert part.events.column("start_ns").chunk(0).buffers()[1].address == shared.address
        assert part.column("parent").get_total_buffer_size() == 64


def test_a_folder_of_many_ranks_is_searched_for_compiled_code_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Path] = []
    iterdir = Path.iterdir

    def counted(folder: Path) -> Iterator[Path]:
        listed.append(folder)
        return iterdir(folder)

    for rank in range(20):
        written(tmp_path, f"rank{rank}.json", rank, step=0)
    monkeypatch.setattr(Path, "iterdir", counted)
    assert len(load(tmp_path)) == 40
    assert len(listed) <= 4
