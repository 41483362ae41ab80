// Saves the timeline of the page as a Chrome trace for Perfetto, with rows for threads and streams and launch arrows.
"use strict";
const timelineSaving = (() => {
  // Returns a map from each process or device to a number.
  const numbered = (data) => new Map([...new Set(data.rows.map(([group]) => group))].map((group, at) => [group, at + 1]));

  const named = (data, pid) => data.rows.flatMap(([group, name], row) => [
    { ph: "M", name: "process_name", pid: pid.get(group), args: { name: group } },
    { ph: "M", name: "thread_name", pid: pid.get(group), tid: row, args: { name } },
    { ph: "M", name: "thread_sort_index", pid: pid.get(group), tid: row, args: { sort_index: row } },
  ]);

  const trace = (data) => {
    const pid = numbered(data), traceEvents = named(data, pid);
    const place = (i) => ({ pid: pid.get(data.rows[data.row[i]][0]), tid: data.row[i], ts: data.start_ns[i] / 1e3 });
    for (let i = 0; i < data.count; i++) {
      const kind = data.kinds[data.kind[i]];
      traceEvents.push({ ph: "X", name: data.names[data.name[i]], cat: kind, ...place(i), dur: data.dur_ns[i] / 1e3 });
      if (data.cause[i] < 0) continue;
      const arrow = { cat: "launch", name: "launch", id: i };
      traceEvents.push({ ph: "s", ...arrow, ...place(data.cause[i]) }, { ph: "f", bp: "e", ...arrow, ...place(i) });
    }
    return { displayTimeUnit: "ns", traceEvents };
  };

  const save = (data) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(trace(data))], { type: "application/json" }));
    link.download = "timeline.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // a download may begin with a delay
  };

  return { save };
})();
