// Rows of a table as bars: a bar for each of the largest rows, or one stacked bar of all rows.
"use strict";
(() => {
  const ranking = (figure, _, { of, layout, axis }) => {
    const names = figure.x.values, positions = names.map((_, position) => position);
    const { values } = figure.series[0];
    const traces = [{
      type: "bar", orientation: "h", y: positions, x: values,
      customdata: figure.full.map((name, position) => [name, page.units.quantity(values[position], figure.unit)]),
      marker: { color: of(figure.series[0].colour) }, hovertemplate: "%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
    }];
    return [traces, layout({
      bargap: 0.25,
      xaxis: axis({ title: { text: `${figure.series[0].name} (${figure.unit})` }, rangemode: "tozero" }),
      yaxis: axis({ tickvals: positions, ticktext: figure.short, autorange: "reversed", showgrid: false, zeroline: false }),
    })];
  };

  const share = (figure, _, { of, layout }) => {
    const { values } = figure.series[0];
    const whole = values.reduce((sum, value) => sum + (value ?? 0), 0) || 1;
    const traces = figure.x.values.map((name, index) => ({
      type: "bar", orientation: "h", name, y: [0], x: [values[index]], marker: { color: of(figure.colours[index]) },
      text: values[index] / whole > 0.06 ? page.units.share(values[index] / whole) : "", textposition: "inside",
      insidetextanchor: "middle", insidetextfont: { color: "#fff" },
      hovertemplate: `${page.units.quantity(values[index], figure.unit)}, ${page.units.share(values[index] / whole)}<extra>${name}</extra>`,
    })).filter((_, index) => values[index]);
    return [traces, layout({
      barmode: "stack", showlegend: true, margin: { l: 8, r: 8, t: 8, b: 8 },
      xaxis: { visible: false, range: [0, whole] }, yaxis: { visible: false },
    })];
  };

  Object.assign(page.shapes, { ranking, share });
})();
