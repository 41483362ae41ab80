"""Tests of the arguments of Ascend recordings: their JSON texts, and the calls around their times."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pyarrow as pa

from perfkit_core.readers.ascend.arguments import extracted
from perfkit_core.readers.ascend.database_columns import encoded, json_objects, quoted
from perfkit_core.readers.ascend.host_calls import around

_KEYS = ("size", "task id", "Task Id", "type", "type2")
_TEXTS = ("", "SDMA", 'a "quoted" text', "back\\slash", "täsk")


def _recorded(seed: int, rows: int) -> list[dict[str, int | str]]:
    random = Random(seed)
    values = (lambda: random.choice([0, 7, 4294967295, 10**18 - 1]), lambda: random.choice(_TEXTS))
    return [
        {key: values[key.startswith("type")]() for key in _KEYS if random.random() < 0.4} if row % 7 else {}
        for row in range(rows)
    ]


def test_objects_have_the_numbers_and_texts_that_are_not_missing() -> None:
    for rows in (_recorded(1, 200), [dict(row, size=1) for row in _recorded(2, 50)], []):
        columns = {}
        for key in _KEYS:
            if key.startswith("type"):
                codes = [_TEXTS.index(str(row[key])) if key in row else -1 for row in rows]
                columns[key] = quoted(encoded(_TEXTS, np.array(codes, np.int64)))
            else:
                columns[key] = np.array([row.get(key, -1) for row in rows], np.int64)
        texts = json_objects(columns).to_pylist()
        assert [text and json.loads(text) for text in texts] == [row or None for row in rows]


def test_arguments_are_those_that_json_reads() -> None:
    rows = _recorded(3, 300)
    for row in rows:  # texts with escapes are not read
        row |= {"note": "type", "sizes": 5}
    texts = [None if number % 11 == 0 else json.dumps(row) for number, row in enumerate(rows)]
    given, named = extracted(pa.array(["x", *texts]).slice(1), _KEYS[:3], _KEYS[3:])
    for at, (text, row) in enumerate(zip(texts, rows, strict=True)):
        expected = row if text is not None else {}
        assert given[:, at].tolist() == [expected.get(key, -1) for key in _KEYS[:3]]
        for key, column in zip(_KEYS[3:], named, strict=True):
            value = expected.get(key)
            assert column[at].as_py() == (None if "\\" in json.dumps(value) else value)


def test_the_call_around_a_time_is_the_one_that_began_last() -> None:
    random = np.random.default_rng(4)
    start = random.integers(0, 1000, 60)
    end = start + random.integers(0, 300, 60)
    rows, times = np.arange(100, 160), random.integers(-10, 1300, 200)
    found = around(rows, start, end, times)
    for time, row in zip(times.tolist(), found.tolist(), strict=True):
        open_ = np.flatnonzero((start <= time) & (end >= time))
        last = open_[np.flatnonzero(start[open_] == start[open_].max())[-1]] if len(open_) else None
        assert row == (-1 if last is None else rows[last])
