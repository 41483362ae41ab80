// The visible part of a timeline: the positions of lanes, the time interval, and the boxes to draw. If several boxes
// of a lane are in the same pixel, only the longest box is drawn, or the longest match of a search.
"use strict";
class TimelineView {
  static BAR = 17; // height of a lane in pixels
  static RULER = 22;
  static TITLE = 18; // height of a row title
  static GAP = 6; // gap between rows
  static SHORTEST = 100; // shortest visible time interval in ns

  constructor(data) {
    this.data = data;
    this.lanes = timelineData.lanes(data);
    this.from = 0; // ns
    this.span = 1; // ns
    this.width = 1; // width of the drawing in pixels
    this.window = 0; // visible height in pixels
    this.top = 0; // scroll position in pixels
    this.placeLanes();
  }

  placeLanes() {
    const { BAR, RULER, TITLE, GAP } = TimelineView;
    let y = RULER, row = -1, group = "", top = 0;
    this.titles = [];
    for (const lane of this.lanes) {
      if (lane.row !== row) {
        const [name, thread] = this.data.rows[lane.row];
        y += row < 0 ? 0 : GAP;
        this.titles.push({ y, text: name === group ? thread : `${name} · ${thread}` });
        [row, group] = [lane.row, name];
        top = y += TITLE;
      }
      lane.y = top + lane.depth * BAR;
      y = Math.max(y, lane.y + BAR);
    }
    this.height = y + GAP;
  }

  get scale() { return this.span / this.width; } // ns per pixel
  get end() { return this.from + this.span; }
  time(x) { return this.from + x * this.scale; }
  x(time) { return (time - this.from) / this.scale; }

  look(from, span) {
    this.span = Math.max(span, TimelineView.SHORTEST);
    this.from = from;
  }

  zoom(factor, around) {
    const span = Math.max(this.span * factor, TimelineView.SHORTEST);
    this.look(around - (around - this.from) * (span / this.span), span);
  }

  // Shows a part (a step) with a small margin.
  show([, start, end]) {
    const margin = (end - start) * 0.01;
    this.look(start - margin, end - start + 2 * margin);
  }

  fit(box) {
    const width = Math.max(this.data.dur_ns[box], 10);
    this.look(this.data.start_ns[box] - width * 0.1, width * 1.2);
  }

  // Centres a box and zooms in until its name is readable.
  centre(box) {
    const middle = this.data.start_ns[box] + this.data.dur_ns[box] / 2;
    const span = Math.min(this.span, Math.max(this.data.dur_ns[box], 1) * 20);
    this.look(middle - Math.max(span, TimelineView.SHORTEST) / 2, span);
  }

  laneOf(box) { return this.lanes[timelineData.laneOf(this.lanes, box)]; }

  seen() { return this.lanes.filter((lane) => lane.y + TimelineView.BAR > this.top && lane.y < this.top + this.window); }

  // Returns the numbers (from 1) of the first and last visible row, and the number of all rows.
  rows() {
    const seen = this.seen(), number = new Map([...new Set(this.lanes.map((lane) => lane.row))].map((row, at) => [row, at + 1]));
    return { first: number.get(seen.at(0)?.row) ?? 0, last: number.get(seen.at(-1)?.row) ?? 0, all: number.size };
  }

  // Returns the longest box within one pixel of a position in the window, or -1 if there is none.
  at(x, y) {
    const height = y + this.top;
    for (const lane of this.seen()) {
      if (height < lane.y || height >= lane.y + TimelineView.BAR) continue;
      return timelineData.longest(this.data, lane, this.time(x - 1), this.time(x + 1));
    }
    return -1;
  }

  // Calls ``draw`` for each visible box of a lane, with the box, its left edge and its width in pixels.
  boxes(lane, matches, draw) {
    const { data, scale } = this;
    const better = (one, other) => (matches && matches[one] !== matches[other] ? matches[one] > matches[other] : data.dur_ns[one] > data.dur_ns[other]);
    let left = -1, longest = -1;
    const flush = () => {
      if (longest >= 0) draw(longest, left, 1);
      longest = -1;
    };
    for (let i = timelineData.firstEndingAfter(data, lane, this.from); i < lane.end && data.start_ns[i] < this.end; i++) {
      const x = this.x(data.start_ns[i]), wide = data.dur_ns[i] / scale, pixel = Math.max(Math.floor(x), 0);
      if (wide >= 1) {
        flush();
        const begin = Math.max(x, -1);
        draw(i, begin, Math.min(x + wide, this.width + 1) - begin);
        continue;
      }
      if (pixel !== left) flush();
      left = pixel;
      if (longest < 0 || better(i, longest)) longest = i;
    }
    flush();
  }
}
