// Texts of a timeline: the tooltip, the details of the selected box, and the status line.
"use strict";
const timelineTexts = (() => {
  const { launches } = timelineData, { count, duration } = page.units;
  const name = (data, box) => data.names[data.name[box]];

  const hover = (data, box) => `${name(data, box)}\n${duration(data.dur_ns[box])}`;

  const exact = (ns) => `${duration(ns)} (${count(ns)} ns)`;

  // The lines are the name, the kind and duration, the place and start, the launching call, and the launched work.
  const details = (data, box) => {
    const [group, row] = data.rows[data.row[box]], work = launches(data, box), cause = data.cause[box];
    const lines = [
      name(data, box),
      `${data.kinds_said[data.kind[box]]}, ${exact(data.dur_ns[box])}`,
      page.say("{place}, begins {time} after the start of the timeline", { place: `${group} · ${row}`, time: exact(data.start_ns[box]) }),
    ];
    if (cause >= 0) lines.push(page.say("launched by {name}", { name: name(data, cause) }));
    if (work.length) lines.push(page.say("launched {name} (events launched: {count})", { count: count(work.length), name: name(data, work[0]) }));
    return lines.join("\n");
  };

  const status = (view, drawn, found) => {
    const { first, last, all } = view.rows();
    const said = [page.say("{span} shown, {count} boxes drawn", { span: duration(view.span), count: count(drawn) })];
    if (last - first + 1 < all) said.push(page.say("rows {first} to {last} of {all} (scroll to see more)", { first, last, all: count(all) }));
    if (found) said.push(page.say("matches: {count} (Enter selects the next match)", { count: count(found.length) }));
    return said.join("; ");
  };

  return { hover, details, status };
})();
