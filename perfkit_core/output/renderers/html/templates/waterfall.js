// The differences between two totals. Each bar begins where the previous bar ends.
"use strict";
page.shapes.waterfall = (figure, _, { of, colour, layout, axis, escaped }) => {
  const positions = figure.names.map((_, position) => position);
  const traces = [{
    type: "waterfall", orientation: "h", y: positions,
    x: figure.differences.map((difference, position) => difference ?? figure.reached[position]),
    measure: figure.differences.map((difference, position) => (difference !== null ? "relative" : position ? "total" : "absolute")),
    customdata: figure.names.map((name, position) => [escaped(name), page.units.quantity(figure.reached[position], figure.unit)]),
    text: figure.texts,
    textposition: "outside", cliponaxis: false, textfont: { color: colour("--ink") },
    increasing: { marker: { color: of("more") } },
    decreasing: { marker: { color: of("less") } },
    totals: { marker: { color: of("total") } },
    connector: { line: { color: colour("--line") } },
    hovertemplate: `%{customdata[0]}<br>%{text} ${figure.unit}, ${escaped(figure.title)} %{customdata[1]}<extra></extra>`,
  }];
  return [traces, layout({
    bargap: 0.3, showlegend: false, margin: { l: 56, r: 40, t: 8, b: 44 },
    xaxis: axis({ title: { text: `${escaped(figure.title)} (${figure.unit})` }, range: range(figure.reached) }),
    yaxis: axis({ tickvals: positions, ticktext: figure.short.map(escaped), autorange: "reversed", showgrid: false, zeroline: false }),
  })];

  // The axis begins at 0, unless the differences would be too small to see. The texts need room next to the bars.
  function range(reached) {
    const low = Math.min(...reached), high = Math.max(...reached), spread = high - low || high || 1;
    return [low > spread ? low - spread / 2 : low < 0 ? low - spread / 5 : 0, Math.max(high, 0) + spread / 5];
  }
};
