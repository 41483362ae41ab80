// Makes a Chrome trace of the timeline of the page, with rows for threads and streams and launch arrows. It is saved, or
// handed to the Perfetto UI: https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
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

  const UI = "https://ui.perfetto.dev", EVERY = 100, LONGEST = 30_000; // ms

  // Opens the Perfetto UI in another window, and sends the trace as soon as the UI answers. ``say`` shows the progress.
  const open = (data, say) => {
    const ui = window.open(UI);
    if (!ui) return say(page.say("The browser did not open a window for Perfetto. Allow it, or save the file and open it there."));
    say(page.say("waiting for {place}", { place: UI }));
    const end = (text) => {
      clearInterval(asking);
      clearTimeout(giving);
      removeEventListener("message", answered);
      say(text);
    };
    const answered = ({ data: text, source }) => {
      if (source !== ui || text !== "PONG") return;
      const buffer = new TextEncoder().encode(JSON.stringify(trace(data))).buffer;
      ui.postMessage({ perfetto: { buffer, title: document.title, fileName: "timeline.json" } }, UI);
      end(page.say("sent to Perfetto: the {count} boxes of this timeline, with the launches", { count: page.units.count(data.count) }));
    };
    addEventListener("message", answered);
    const asking = setInterval(() => ui.postMessage("PING", "*"), EVERY);
    const giving = setTimeout(() => end(page.say("Perfetto did not answer. Save the file and open it there.")), LONGEST);
  };

  return { save, open };
})();
