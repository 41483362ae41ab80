"""A reader that uses duckdb to create the contents of perfkit's stored run: exact times in order, launches, parents,
self times and steps. The other duckdb readers only create a table of the file's contents.

duckdb's JSON reader converts every number to float64. For times in µs since 1970, its resolution is only a quarter of a
microsecond. The query therefore extracts the times from the text of each line. Unlike perfkit, it requires that the
events of a thread nest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.readers.contract import Outcome, Reader
from benchmarks.readers.engines import cells, lines

_DEVICE: Final = "cat IN ('kernel', 'gpu_memcpy', 'gpu_memset', 'gpu_user_annotation')"
_CALL: Final = "cat IN ('cuda_runtime', 'cuda_driver')"

_EVENTS: Final = """
CREATE TEMP TABLE event AS
SELECT row_number() OVER (ORDER BY start_ns, dur_ns DESC, line) - 1 AS row, * EXCLUDE line, {device} AS on_device FROM (
    SELECT line, name, cat, (1000 * ts::DECIMAL(22, 3))::BIGINT AS start_ns,
        (1000 * coalesce(nullif(dur, ''), '0')::DECIMAL(22, 3))::BIGINT AS dur_ns, pid, tid, args, {cells}
    FROM (
        SELECT row_number() OVER () AS line, event->>'name' AS name, event->>'cat' AS cat, event->>'ph' AS ph,
            trim(split_part(split_part(event, '"ts":', 2), ',', 1), ' }}') AS ts,
            trim(split_part(split_part(event, '"dur":', 2), ',', 1), ' }}') AS dur,
            event->>'pid' AS pid, event->>'tid' AS tid, event->'args' AS args, {found} AS found
        FROM read_csv('{file}', columns = {{event: 'JSON'}}, header = false, delim = '\\x01', quote = '', escape = '',
            auto_detect = false)
    ) WHERE ph = 'X' AND cat <> 'Trace'
);
"""
_TREE: Final = """
CREATE TEMP TABLE tree AS
WITH edge AS (
    SELECT pid, tid, row, dur_ns, start_ns AS time, 1 AS deeper, 1 AS late FROM event WHERE NOT on_device
    UNION ALL
    SELECT pid, tid, row, dur_ns, start_ns + dur_ns, -1, (dur_ns = 0)::INT FROM event WHERE NOT on_device
), begin AS (
    SELECT * FROM (
        SELECT pid, tid, row, dur_ns, deeper,
            sum(deeper) OVER (PARTITION BY pid, tid ORDER BY time, late, row, deeper DESC) AS depth
        FROM edge
    ) WHERE deeper = 1
)
SELECT child.row, child.dur_ns, above.row AS parent FROM begin child ASOF LEFT JOIN begin above
ON child.pid = above.pid AND child.tid = above.tid AND child.depth = above.depth + 1 AND child.row > above.row;
"""
_RUN: Final = """
COPY (
    WITH launch AS (
        SELECT correlation, min(row) AS launched_by FROM event WHERE {call} GROUP BY correlation
    ), inside AS (
        SELECT parent AS row, sum(dur_ns) AS covered FROM tree GROUP BY parent
    ), step AS (
        SELECT start_ns, start_ns + dur_ns AS end_ns, regexp_extract(name, '[0-9]+$')::BIGINT AS step
        FROM event WHERE cat = 'user_annotation' AND name LIKE 'ProfilerStep#%'
    ), linked AS (
        SELECT event.*, coalesce(launched_by, -1) AS launched_by, coalesce(parent, -1) AS parent,
            CASE WHEN NOT on_device THEN event.dur_ns - coalesce(covered, 0) END AS self_ns
        FROM event LEFT JOIN launch ON on_device AND event.correlation = launch.correlation
        LEFT JOIN tree ON tree.row = event.row LEFT JOIN inside ON inside.row = event.row
    ), timed AS (
        SELECT linked.*, CASE WHEN NOT on_device AND linked.start_ns < end_ns THEN step.step END AS own_step
        FROM linked ASOF LEFT JOIN step ON linked.start_ns >= step.start_ns
    )
    SELECT timed.* EXCLUDE own_step, coalesce(timed.own_step, call.own_step) AS step
    FROM timed LEFT JOIN timed call ON timed.launched_by = call.row ORDER BY timed.row
) TO '{out}' (FORMAT parquet, COMPRESSION zstd);
"""


def written(file: Path, folder: Path) -> Path:
    """Write the events of a trace to Parquet. ``start_ns`` is relative to the base of the file."""
    import duckdb

    found, columns = cells("event", "$.args.")
    out = folder / "run.parquet"
    with duckdb.connect() as connection:
        connection.execute(_EVENTS.format(device=_DEVICE, cells=columns, found=found, file=lines(file, folder)))
        connection.execute(_TREE)
        connection.execute(_RUN.format(call=_CALL, out=out))
    return out


def _stored(file: Path, folder: Path) -> Outcome:
    from pyarrow import parquet

    out = written(file, folder)
    return Outcome(parquet.read_metadata(out).num_rows, out.stat().st_size)


READERS = (
    Reader(
        "duckdb, stored run by SQL",
        "peer",
        "exact ns, order, launches, parents, self times, steps by SQL, nine arguments as columns; Parquet with zstd",
        ("msgspec", "duckdb", "pyarrow.parquet"),
        _stored,
        slow=True,
    ),
)
