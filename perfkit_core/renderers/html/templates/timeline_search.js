// The search for boxes whose name contains a text.
"use strict";
class TimelineSearch {
  constructor(data) {
    this.data = data;
    this.matches = null; // for each name, whether it matches; null without a search
    this.found = []; // matching boxes, sorted by start
    this.nth = -1;
  }

  // Searches the boxes of a part (a step).
  find(text, [, start, end]) {
    const { data } = this, letters = text.toLowerCase();
    const inside = (i) => data.start_ns[i] < end && data.start_ns[i] + data.dur_ns[i] > start;
    [this.found, this.nth] = [[], -1];
    this.matches = letters === "" ? null : data.names.map((name) => name.toLowerCase().includes(letters));
    if (!this.matches) return;
    for (let i = 0; i < data.count; i++) if (this.matches[data.name[i]] && inside(i)) this.found.push(i);
    this.found.sort((a, b) => data.start_ns[a] - data.start_ns[b]);
  }

  // Returns the next match, or -1 if there is no match. After the last match, it returns the first match again.
  next() {
    if (!this.found.length) return -1;
    this.nth = (this.nth + 1) % this.found.length;
    return this.found[this.nth];
  }
}
