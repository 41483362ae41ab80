"""Answers never exceed their budget, whatever they contain, and their parts are the whole answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit_core.errors import UsageError
from perfkit_core.integrations.agents import answers
from perfkit_core.integrations.agents.answers import Content, Items, digest, offset, part
from perfkit_core.integrations.agents.requests import LEAST, MOST

pytestmark = pytest.mark.bare

KEY = digest("view", {"view": "operators"})
texts = st.text(max_size=30) | st.text('a"\\\n\x00\x1b\ud800é漢😀', max_size=800)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=40) | st.dictionaries(texts, inner, max_size=6), max_leaves=25
)
rows = st.lists(st.dictionaries(st.sampled_from(["name", "total_ns", "shapes", "x" * 300]), values), max_size=25)
contents = st.builds(
    lambda head, quality, first, second, columns, text: Content(
        {"source": "a", **head},
        [
            Items(("quality",), quality),
            Items(("views", "first"), first, {name: {"title": name, "unit": "ns"} for name in columns}),
            Items(("views", "second"), second, {"b": {"title": "B", "unit": ""}}),
        ],
        text,
    ),
    st.dictionaries(st.sampled_from(["headline", "gate", "step_time"]), values), rows, rows, rows,
    st.sets(texts, max_size=200), st.lists(texts, max_size=5).map(tuple),
)  # fmt: skip


def wire_bytes(made: answers.Part) -> int:
    """Return the size of a result as a writer of compact JSON sends it."""
    texts = [{"type": "text", "text": text} for text in (made.text, made.json)]
    result = {"content": texts, "structuredContent": made.document, "isError": False}
    text = json.dumps({"jsonrpc": "2.0", "id": 2**31, "result": result}, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode())


def every_part(content: Content, size: int) -> list[answers.Part]:
    parts, cursor = [], None
    while True:
        parts.append(part(content, size, KEY, offset(cursor, KEY)))
        cursor = parts[-1].document["next"]
        if cursor is None:
            return parts


@given(contents, st.integers(LEAST, 30_000))
def test_no_part_exceeds_its_budget(content: Content, size: int) -> None:
    count = sum(len(one.items) for one in content.lists)
    parts = every_part(content, size)
    for made in parts:
        assert wire_bytes(made) <= made.bytes <= size
        assert json.loads(made.json) == json.loads(json.dumps(made.document))
    assert len(parts) <= max(count, 1)
    sent = [len(d.get("quality", [])) + sum(map(len, d["views"].values())) for d in (made.document for made in parts)]
    assert sum(sent) == count
    assert [made.document["items_left"] for made in parts] == [count - sum(sent[: at + 1]) for at in range(len(parts))]


def test_lists_without_columns_go_on_in_the_next_part() -> None:
    """The room that the first list leaves becomes too small for the second one at some length."""
    for length in range(200, LEAST, 5):
        content = Content({}, [Items(("a",), ["x" * length]), Items(("b",), [{"name": "y" * 40}])])
        parts = every_part(content, LEAST)
        assert all(wire_bytes(made) <= LEAST for made in parts)
        assert [item for made in parts for item in made.document.get("b", [])] == [{"name": "y" * 40}]


@given(contents)
def test_a_large_budget_shortens_nothing(content: Content) -> None:
    (made,) = every_part(content, MOST)
    assert not made.document["shortened"]
    assert made.document["views"]["second"] == json.loads(_plain(content.lists[2].items))


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\ud800", "\\\\ud800")


def test_parts_in_order_are_the_rows() -> None:
    items = [{"name": f"operator {number}", "total_ns": number} for number in range(1000)]
    content = Content({"source": "a"}, [Items(("views", "v"), items, {"total_ns": {"title": "Total", "unit": "ns"}})])
    parts = every_part(content, 4000)
    assert [row for made in parts for row in made.document["views"]["v"]] == items
    assert all(made.document["columns"]["v"]["total_ns"]["unit"] == "ns" for made in parts)
    assert parts[0].document["next"] in parts[0].text
    assert not any(made.document["shortened"] for made in parts)


def test_what_is_cut_is_marked() -> None:
    row = {"name": "x" * 50_000, "rows": list(range(9000)), "total_ns": 5}
    made = part(Content({}, [Items(("views", "v"), [row])]), LEAST, KEY)
    (sent,) = made.document["views"]["v"]
    assert made.document["shortened"]
    assert sent["total_ns"] == 5
    assert sent["name"].endswith("…")
    assert sent["rows"]["left_out"] + len(sent["rows"]["first"]) == 9000


@pytest.mark.parametrize(
    ("cursor", "message"),
    [
        ("nonsense", "'nonsense' is not a cursor"),
        ("-1-0123456789abcdef", "is not a cursor"),
        (f"3-{digest('other')}", "the cursor is stale"),
    ],
)
def test_a_wrong_cursor_is_an_error(cursor: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        offset(cursor, KEY)


def test_a_cursor_after_the_end_is_an_error() -> None:
    with pytest.raises(UsageError, match="after the last of 1 items"):
        part(Content({}, [Items(("views", "v"), [1])]), LEAST, KEY, 7)
