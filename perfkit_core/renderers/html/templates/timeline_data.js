// What does a timeline hold? Columns unpacked, boxes in lanes, which of them are where, and what launched what.
"use strict";
const timelineData = (() => {
  const arrays = { f8: Float64Array, i4: Int32Array, u2: Uint16Array };

  // Each column beside the texts, by its name.
  const decoded = async (data) => {
    const buffer = await page.unpacked(data.data), columns = {};
    let at = 0;
    for (const [name, type] of data.columns) {
      columns[name] = new arrays[type](buffer, at, data.count);
      at += columns[name].byteLength;
    }
    return { ...data, ...columns, data: null };
  };

  // The boxes of one depth of one row follow each other in time: a lane. Its ends ascend, so views are found by halving.
  const lanes = (data) => {
    const found = [];
    for (let i = 0; i < data.count; i++) {
      const last = found.at(-1);
      if (last && last.row === data.row[i] && last.depth === data.depth[i]) last.end = i + 1;
      else found.push({ row: data.row[i], depth: data.depth[i], begin: i, end: i + 1, y: 0 });
    }
    return found;
  };

  // The first of so many positions for which a question that turns from no to yes is answered with yes.
  const first = (low, high, answer) => {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (answer(middle)) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  const firstEndingAfter = (data, lane, time) =>
    first(lane.begin, lane.end, (i) => data.start_ns[i] + data.dur_ns[i] > time);

  // The position of a box's lane; lanes are in the order of their boxes.
  const laneOf = (all, box) => first(0, all.length, (position) => all[position].end > box);

  // The longest box of a lane that touches a stretch of time, -1 where none does.
  const longest = (data, lane, from, to) => {
    let best = -1;
    for (let i = firstEndingAfter(data, lane, from); i < lane.end && data.start_ns[i] <= to; i++) {
      if (best < 0 || data.dur_ns[i] > data.dur_ns[best]) best = i;
    }
    return best;
  };

  // What a box launched.
  const launches = (data, box) => {
    const found = [];
    for (let i = 0; i < data.count; i++) if (data.cause[i] === box) found.push(i);
    return found;
  };

  return { decoded, lanes, first, firstEndingAfter, laneOf, longest, launches };
})();
