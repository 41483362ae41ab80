// The search for boxes whose name contains a text.
"use strict";
class TimelineSearch {
  constructor(data) {
    this.data = data;
    this.matches = null; // for each box, whether it matches; null without a search
    this.found = []; // matching boxes, sorted by start
    this.nth = -1;
  }

  // Searches the boxes of a part (a step).
  find(text, part) {
    const { data } = this, letters = text.toLowerCase();
    [this.matches, this.found, this.nth] = [null, [], -1];
    if (letters === "") return;
    const named = data.names.map((name) => name.toLowerCase().includes(letters)), boxes = [];
    for (let i = 0; i < data.count; i++) if (named[data.name[i]]) boxes.push(i);
    this.mark(boxes, part);
  }

  // Makes these boxes the matches.
  mark(boxes, part) {
    const { data } = this;
    this.matches = new Uint8Array(data.count);
    for (const box of boxes) this.matches[box] = 1;
    this.found = boxes.filter((box) => timelineData.inside(data, box, part)).sort((a, b) => data.start_ns[a] - data.start_ns[b]);
    this.nth = -1;
  }

  // Returns the next match, or -1 if there is no match. After the last match, it returns the first match again.
  next() {
    if (!this.found.length) return -1;
    this.nth = (this.nth + 1) % this.found.length;
    return this.found[this.nth];
  }
}
