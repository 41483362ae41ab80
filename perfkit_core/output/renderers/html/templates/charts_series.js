// Numbers over steps or time, as bars, areas (if there are too many bars) or lines.
"use strict";
(() => {
  const MOST_BARS = 300; // more bars would be too thin and are drawn as areas
  const TICKS = 24;

  // Returns the smallest number of the form 1, 2 or 5 × 10ⁿ that is at least ``number``.
  const round = (number) => {
    const power = 10 ** Math.floor(Math.log10(Math.max(number, 1)));
    return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= number);
  };

  const ticks = (figure) => {
    if (figure.x.continuous) return {};
    const names = figure.x.values, every = round(names.length / TICKS);
    const tickvals = names.map((_, position) => position).filter((position) => position % every === 0);
    return { tickvals, ticktext: tickvals.map((position) => names[position]) };
  };

  const drawn = (figure, color, last) => {
    const many = figure.x.values.length > MOST_BARS;
    if (figure.kind !== "bar") return { type: "scatter", mode: figure.x.values.length > 100 ? "lines" : "lines+markers", marker: { color } };
    if (!many) return { type: "bar", marker: { color } };
    const width = last ? 0.7 : 0; // the line keeps a long step visible that is thinner than a pixel
    const area = { type: "scatter", mode: "lines", line: { shape: "hvh", width, color } };
    return figure.stacked ? { ...area, stackgroup: "all", fillcolor: color } : { ...area, fill: "tozeroy", fillcolor: color };
  };

  // The x axis uses positions, because labels may repeat.
  const places = ({ x }) => (x.continuous ? x.values : x.values.map((_, position) => position));

  const place = ({ x }, at) => (x.continuous ? page.units.digits(x.values[at], x.unit) : x.values[at]);

  // Marks the highest point of each line, except lines that are close to 0.
  const peaks = (figure, { of, colour }) => {
    if (figure.stacked) return [];
    const highest = figure.series.map((one) => Math.max(...one.values.filter((value) => value !== null)));
    return figure.series.flatMap((one, index) => {
      if (!figure.x.continuous || highest[index] < Math.max(...highest) / 20 || highest[index] <= 0) return [];
      const at = one.values.indexOf(highest[index]), late = at > one.values.length / 2;
      return [{
        type: "scatter", mode: "markers+text", x: [places(figure)[at]], y: [highest[index]], showlegend: false, hoverinfo: "skip",
        marker: { color: of(one.colour), size: 9, symbol: "diamond" }, textfont: { color: colour("--ink") },
        text: [`${page.say("peak")} ${page.units.quantity(highest[index], figure.unit)}`], textposition: late ? "top left" : "top right", cliponaxis: false,
      }];
    });
  };

  const series = (figure, _, tools) => {
    const { of, layout, axis } = tools;
    const many = figure.series.length > 1;
    const traces = figure.series.map((one, index) => ({
      ...drawn(figure, of(one.colour), index === figure.series.length - 1),
      name: one.name,
      x: places(figure),
      customdata: one.values.map((value, at) => [place(figure, at), page.units.quantity(value, figure.unit)]),
      y: one.values,
      hovertemplate: `${figure.x.title} %{customdata[0]}: %{customdata[1]}<extra>${many ? "%{fullData.name}" : ""}</extra>`,
    }));
    return [[...traces, ...peaks(figure, tools)], layout({
      barmode: figure.stacked ? "stack" : "group",
      bargap: figure.x.values.length > 100 ? 0 : 0.3,
      showlegend: many,
      xaxis: axis({ title: { text: figure.x.title }, showgrid: false, zeroline: false, ...ticks(figure), ...sides(figure) }),
      yaxis: axis({ title: { text: figure.unit }, rangemode: "tozero" }),
    })];
  };

  // Adds room at both sides of a few bars, so that the bars do not become too wide.
  const sides = (figure) => {
    const count = figure.x.values.length;
    if (figure.kind !== "bar" || count > 8) return {};
    const room = (8 - count) / 2;
    return { range: [-0.5 - room, count - 0.5 + room] };
  };

  Object.assign(page.shapes, { bar: series, line: series });
})();
