"""The pictures of the README show what perfkit shows today. ``python tools/pictures.py`` makes them again."""

from __future__ import annotations

import base64
from typing import Any, Final

import pytest

from tools import pictures

pytestmark = pytest.mark.browser

_MAKE: Final = "run python tools/pictures.py"
_DIFFERENCE: Final = """
async (pictures) => {
  const [one, other] = await Promise.all(pictures.map(async (data) => {
    const image = new Image();
    image.src = `data:image/png;base64,${data}`;
    await image.decode();
    const canvas = new OffscreenCanvas(65, 45);
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0, 65, 45);
    return context.getImageData(0, 0, 65, 45).data;
  }));
  return one.reduce((sum, value, at) => sum + Math.abs(value - other[at]), 0) / one.length / 255;
}
"""
"""Mean difference of two pictures, shrunk so that fonts hardly matter; 1 is black against white."""


def test_the_terminal_is_fresh() -> None:
    assert pictures.TERMINAL.read_text(encoding="utf-8") == pictures.terminal(), _MAKE


def test_the_page_is_fresh(browser: Any, tab: Any) -> None:
    stored, now = (base64.b64encode(data).decode() for data in (pictures.PAGE.read_bytes(), pictures.page(browser)))
    blank = base64.b64encode(tab.screenshot()).decode()
    assert tab.evaluate(_DIFFERENCE, [stored, now]) < 0.02, _MAKE
    assert tab.evaluate(_DIFFERENCE, [blank, now]) > 0.02, "an empty page is told from a page"
