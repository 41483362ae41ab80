// Values of several groups on one axis. Each group has a lane, each value a point, and each median a line.
"use strict";
page.shapes.distribution = (figure, _, { of, colour, layout, axis, escaped }) => {
  const spread = (index) => ((index * 0.618034) % 1 - 0.5) * 0.5; // avoids overlapping points of similar values
  const traces = figure.lanes.flatMap((lane, row) => {
    const hover = `${escaped(lane.name)}<br>${escaped(page.say("step"))} %{customdata[0]}: %{customdata[1]}<extra></extra>`;
    const points = {
      type: "scatter", mode: "markers+text", x: lane.values, y: lane.values.map((_, index) => row + spread(index)),
      customdata: lane.labels.map((label, index) => [escaped(label), page.units.quantity(lane.values[index], figure.unit)]), hovertemplate: hover, showlegend: false, cliponaxis: false,
      text: lane.marked.map((marked, index) => (marked && lane.named ? escaped(`${page.say("step")} ${lane.labels[index]}`) : "")),
      textposition: "top center", textfont: { color: colour("--ink"), size: 11 },
      marker: {
        color: of(lane.colour), opacity: lane.values.length > 200 ? 0.35 : 0.75, size: 7,
        symbol: lane.marked.map((marked) => (marked ? "diamond-open" : "circle")),
      },
    };
    const median = {
      type: "scatter", mode: "markers", x: [lane.median], y: [row], showlegend: false, cliponaxis: false,
      marker: { symbol: "line-ns", size: 34, line: { width: 3, color: colour("--ink") } },
      hovertemplate: `${escaped(lane.name)}<br>${escaped(page.say("median"))} ${lane.median_text}<extra></extra>`,
    };
    const said = {
      type: "scatter", mode: "text", x: [lane.median], y: [row + 0.42], text: [lane.median_text], showlegend: false,
      textfont: { color: colour("--ink"), size: 12 }, cliponaxis: false, hoverinfo: "skip",
    };
    return [points, median, said];
  });
  const rows = figure.lanes.map((_, row) => row);
  // The axis shows only a part of a wide noise band, because the entire band would leave no room for the steps.
  const every = figure.lanes.flatMap((lane) => lane.values), [low, high] = [Math.min(...every), Math.max(...every)];
  const room = (high - low || high || 1) * 0.5, [from, to] = figure.band ?? [low, high], edge = room / 8;
  const range = [Math.min(low, Math.max(from, low - room)) - edge, Math.max(high, Math.min(to, high + room)) + edge];
  const band = figure.band && {
    type: "rect", xref: "x", yref: "paper", x0: figure.band[0], x1: figure.band[1], y0: 0, y1: 1, layer: "below",
    line: { width: 0 }, fillcolor: of(figure.lanes[0].colour), opacity: 0.15,
  };
  return [traces, layout({
    shapes: band ? [band] : [], hovermode: "closest",
    xaxis: axis({ title: { text: `${escaped(figure.title)} (${figure.unit})` }, range }),
    yaxis: axis({ tickvals: rows, ticktext: figure.lanes.map((lane) => escaped(lane.short)), range: [rows.length - 0.4, -0.6], showgrid: false, zeroline: false }),
  })];
};
