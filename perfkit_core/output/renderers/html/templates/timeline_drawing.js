// Draws a timeline: ruler, row titles, boxes with names, and lines from launches to the launched work.
"use strict";
const timelineDrawing = (() => {
  const { BAR, RULER, TITLE } = TimelineView;
  const NAMED = 30; // minimum width in pixels of a box with text
  const MOST_LINKS = 200;
  const colours = (data) => ({
    ink: page.colour("--ink"), soft: page.colour("--soft"), line: page.colour("--line"), card: page.colour("--card"),
    accent: page.colour("--accent"),
    boxes: data.colours.map((name) => page.colour(`--soft-${name}`)),
  });

  const prepared = (canvas, view) => {
    const ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    canvas.width = view.width * ratio;
    canvas.height = view.window * ratio;
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    return pen;
  };

  const step = (view) => {
    const raw = view.span / Math.max(view.width / 110, 1), power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  };

  const marks = (view) => {
    const every = step(view), times = [];
    for (let nth = Math.ceil(view.from / every); nth * every < view.end; nth++) times.push(nth * every);
    return times;
  };

  const grid = (pen, view, { line }) => {
    pen.strokeStyle = line;
    for (const time of marks(view)) {
      const x = Math.round(view.x(time)) + 0.5;
      pen.beginPath();
      pen.moveTo(x, RULER - 4);
      pen.lineTo(x, view.window);
      pen.stroke();
    }
  };

  // The ruler is drawn last, over the rows, because it stays in place when rows are scrolled.
  const ruler = (pen, view, { card, soft }) => {
    pen.fillStyle = card;
    pen.fillRect(0, 0, view.width, RULER - 2);
    pen.fillStyle = soft;
    for (const time of marks(view)) {
      const text = time === 0 ? "0" : page.units.tick(time, "ns"), x = view.x(time) + 3;
      if (x + pen.measureText(text).width < view.width) pen.fillText(text, x, RULER / 2);
    }
  };

  const box = (pen, view, shown, i, x, wide, y, paper) => {
    const name = view.data.name[i], chosen = i === shown.chosen;
    pen.globalAlpha = shown.matches && !shown.matches[i] ? 0.2 : 1;
    pen.fillStyle = chosen ? paper.accent : paper.boxes[view.data.kind[i]];
    pen.fillRect(x, y, Math.max(wide - (wide > 3 ? 1 : 0), 1), BAR - 1);
    if (wide > NAMED) {
      pen.fillStyle = chosen ? paper.card : paper.ink;
      named(pen, view.data.names[name], x, wide, y);
    }
    pen.globalAlpha = 1;
  };

  const named = (pen, name, x, wide, y) => {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, wide - 3, BAR);
    pen.clip();
    pen.fillText(name.slice(0, Math.ceil(wide / 4)), Math.max(x, 0) + 3, y + BAR / 2);
    pen.restore();
  };

  const links = (pen, view, i, { accent }) => {
    const { data } = view, middle = (one) => view.laneOf(one).y - view.top + BAR / 2;
    const pairs = timelineData.launches(data, i).slice(0, MOST_LINKS).map((work) => [i, work]);
    if (data.cause[i] >= 0) pairs.push([data.cause[i], i]);
    pen.strokeStyle = accent;
    pen.lineWidth = 1.5;
    for (const [from, to] of pairs) {
      const [x1, x2] = [view.x(data.start_ns[from]), view.x(data.start_ns[to])];
      pen.beginPath();
      pen.moveTo(x1, middle(from));
      pen.bezierCurveTo(x1 + 30, middle(from), x2 - 30, middle(to), x2, middle(to));
      pen.stroke();
    }
  };

  // Draws the timeline and returns the number of drawn boxes. ``shown`` is {chosen, hovered, matches}.
  const draw = (canvas, view, shown) => {
    const pen = prepared(canvas, view), paper = colours(view.data);
    let drawn = 0;
    grid(pen, view, paper);
    for (const lane of view.seen()) {
      view.boxes(lane, shown.matches, (i, x, wide) => { drawn++; box(pen, view, shown, i, x, wide, lane.y - view.top, paper); });
    }
    pen.fillStyle = paper.soft;
    for (const { y, text } of view.titles) pen.fillText(text, 4, y - view.top + TITLE / 2);
    for (const one of new Set([shown.chosen, shown.hovered])) if (one >= 0) links(pen, view, one, paper);
    ruler(pen, view, paper);
    return drawn;
  };

  return { draw };
})();
