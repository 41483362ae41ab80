// From the chosen box of a timeline to another: the next one in time, the one above, the one below.
"use strict";
const timelineWalking = (() => {
  // Chooses a box, and moves only as far as is needed to see it.
  const reach = (timeline, box) => {
    const { view } = timeline, { from, span } = view, start = view.data.start_ns[box], dur = view.data.dur_ns[box];
    timeline.go(box);
    view.look(start >= from && start + dur <= from + span ? from : start + (dur - span) / 2, span);
  };

  // To the nearest lane below (1) or above (-1) with a box at the same time; of several the longest.
  const climb = (timeline, by) => {
    const { view, chosen } = timeline, { data, lanes } = view, nothing = chosen < 0;
    let at = nothing ? (by > 0 ? -1 : lanes.length) : timelineData.laneOf(lanes, chosen);
    const begin = nothing ? view.from : data.start_ns[chosen], end = nothing ? view.end : begin + data.dur_ns[chosen];
    for (at += by; at >= 0 && at < lanes.length; at += by) {
      const box = timelineData.longest(data, lanes[at], begin, Math.max(begin, end - 1));
      if (box >= 0) return reach(timeline, box);
    }
  };

  // To a neighbour in its lane; from nothing to the first lane.
  const walk = (timeline, by) => {
    if (timeline.chosen < 0) return climb(timeline, 1);
    const lane = timeline.view.laneOf(timeline.chosen), box = timeline.chosen + by;
    if (box >= lane.begin && box < lane.end) reach(timeline, box);
  };

  return { climb, walk };
})();
