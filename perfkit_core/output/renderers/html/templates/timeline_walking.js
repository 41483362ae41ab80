// Moves the selection of a timeline to the next box in time, or to a box above or below.
"use strict";
const timelineWalking = (() => {
  // Selects a box, and moves the view only as far as necessary to show it.
  const reach = (timeline, box) => {
    const { view } = timeline, { from, span } = view, start = view.data.start_ns[box], dur = view.data.dur_ns[box];
    timeline.go(box);
    view.look(start >= from && start + dur <= from + span ? from : start + (dur - span) / 2, span);
  };

  // Selects the longest box at the same time in the nearest lane below (1) or above (-1) that has such a box.
  const climb = (timeline, by) => {
    const { view, chosen } = timeline, { data, lanes } = view, nothing = chosen < 0;
    let at = nothing ? (by > 0 ? -1 : lanes.length) : timelineData.laneOf(lanes, chosen);
    const begin = nothing ? view.from : data.start_ns[chosen], end = nothing ? view.end : begin + data.dur_ns[chosen];
    for (at += by; at >= 0 && at < lanes.length; at += by) {
      const box = timelineData.longest(data, lanes[at], begin, Math.max(begin, end - 1));
      if (box >= 0) return reach(timeline, box);
    }
  };

  // Selects a neighbour in the lane of the selected box. Without a selection, selects a box in the first lane.
  const walk = (timeline, by) => {
    if (timeline.chosen < 0) return climb(timeline, 1);
    const lane = timeline.view.laneOf(timeline.chosen), box = timeline.chosen + by;
    if (box >= lane.begin && box < lane.end) reach(timeline, box);
  };

  return { climb, walk };
})();
