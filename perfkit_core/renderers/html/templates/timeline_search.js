// Which boxes have a name with these letters in it, and which of them is the next?
"use strict";
class TimelineSearch {
  constructor(data) {
    this.data = data;
    this.matches = null; // of each name, whether it is wanted; null: nothing is searched for
    this.found = []; // boxes, in the order of time
    this.nth = -1;
  }

  // Within a part (a step).
  find(text, [, start, end]) {
    const { data } = this, letters = text.toLowerCase();
    const inside = (i) => data.start_ns[i] < end && data.start_ns[i] + data.dur_ns[i] > start;
    [this.found, this.nth] = [[], -1];
    this.matches = letters === "" ? null : data.names.map((name) => name.toLowerCase().includes(letters));
    if (!this.matches) return;
    for (let i = 0; i < data.count; i++) if (this.matches[data.name[i]] && inside(i)) this.found.push(i);
    this.found.sort((a, b) => data.start_ns[a] - data.start_ns[b]);
  }

  // -1 where there is none; after the last comes the first.
  next() {
    if (!this.found.length) return -1;
    this.nth = (this.nth + 1) % this.found.length;
    return this.found[this.nth];
  }
}
