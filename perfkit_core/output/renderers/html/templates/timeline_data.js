// The data of a timeline: decompressed columns, lanes of boxes, searches by time, and launches.
"use strict";
const timelineData = (() => {
  const arrays = { f8: Float64Array, i4: Int32Array, u2: Uint16Array };

  // Adds the decompressed columns to the data.
  const decoded = async (data) => {
    const buffer = await page.unpacked(data.data), columns = {};
    let at = 0;
    for (const [name, type] of data.columns) {
      columns[name] = new arrays[type](buffer, at, data.count);
      at += columns[name].byteLength;
    }
    const marked = new Int32Array(await page.unpacked(data.marked)), marks = {};
    at = 0;
    for (const [kind, { names, counts }] of Object.entries(data.marks)) {
      marks[kind] = new Map(names.map((name, index) => [name, marked.subarray(at, (at += counts[index]))]));
    }
    return { ...data, ...columns, marks, data: null, marked: null };
  };

  // Returns the boxes of a thing: those that the page lists, or the boxes of its kind with its name.
  const boxesOf = (data, kind, name) => {
    if (kind === "step") return partOf(data, name) < 0 ? [] : [partOf(data, name)];
    if (data.marks[kind]) return [...(data.marks[kind].get(name) ?? [])];
    const wanted = data.names.indexOf(name), of = data.kinds.indexOf(kind), boxes = [];
    for (let i = 0; i < data.count && wanted >= 0; i++) if (data.name[i] === wanted && data.kind[i] === of) boxes.push(i);
    return boxes;
  };

  // Returns the things of a box as [kind, name].
  const thingsOf = (data, box) => [
    [data.kinds[data.kind[box]], data.names[data.name[box]]],
    ...Object.entries(data.marks).flatMap(([kind, things]) => [...things].filter(([, boxes]) => contains(boxes, box)).map(([name]) => [kind, name])),
  ];

  const contains = (sorted, box) => sorted[first(0, sorted.length, (at) => sorted[at] >= box)] === box;

  // Returns the number of the part of a step: "5", or "RANK · 5".
  const partOf = (data, name) => data.parts.findIndex(([, , , step]) => step !== "" && (step === name || name.endsWith(` · ${step}`)));

  const inside = (data, box, [, start, end]) => data.start_ns[box] < end && data.start_ns[box] + data.dur_ns[box] > start;

  // A lane holds the boxes of one depth of one row. Boxes of a lane do not overlap, so a binary search can find them.
  const lanes = (data) => {
    const lanes = [];
    for (let i = 0; i < data.count; i++) {
      const last = lanes.at(-1);
      if (last && last.row === data.row[i] && last.depth === data.depth[i]) last.end = i + 1;
      else lanes.push({ row: data.row[i], depth: data.depth[i], begin: i, end: i + 1, y: 0 });
    }
    return lanes;
  };

  // Returns the first position from low to high - 1 for which the answer is true, or high if there is none. The answer
  // must not change from true to false.
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

  // Returns the position of the lane of a box. Lanes are in the order of their boxes.
  const laneOf = (all, box) => first(0, all.length, (position) => all[position].end > box);

  // Returns the longest box of a lane that overlaps a time interval, or -1 if there is none.
  const longest = (data, lane, from, to) => {
    let best = -1;
    for (let i = firstEndingAfter(data, lane, from); i < lane.end && data.start_ns[i] <= to; i++) {
      if (best < 0 || data.dur_ns[i] > data.dur_ns[best]) best = i;
    }
    return best;
  };

  // Returns the boxes that a box launched.
  const launches = (data, box) => {
    const work = [];
    for (let i = 0; i < data.count; i++) if (data.cause[i] === box) work.push(i);
    return work;
  };

  return { decoded, lanes, first, firstEndingAfter, laneOf, longest, launches, boxesOf, thingsOf, partOf, inside };
})();
