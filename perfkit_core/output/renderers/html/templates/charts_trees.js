// A tree as nested boxes or rings, or as bars of the children of the open row.
"use strict";
(() => {
  const MOST_BARS = 15;

  const whole = (text, { lines, escaped }) => lines(text, 100).map(escaped).join("<br>");
  const children = (figure, row) => figure.parents.flatMap((above, index) => (above === row ? [index] : []));

  // Returns a number that depends only on the name, so that a name has the same colour on every page.
  const numbered = (name) => [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 9973, 7);

  // Boxes of a level have one colour. Rings have the colour of their root. Matches of the search are highlighted.
  const colours = (figure, state, { of, soft, colour }) => {
    const shade = [], wanted = state.text.toLowerCase(), boxes = figure.kind === "icicle";
    figure.parents.forEach((above, row) => shade.push(above < 0 ? (boxes ? 0 : numbered(figure.labels[row])) : shade[above] + boxes));
    return figure.labels.map((name, row) => {
      if (wanted === "") return soft[shade[row] % (boxes ? 4 : soft.length)];
      return name.toLowerCase().includes(wanted) ? of("dataloader") : colour("--head");
    });
  };

  // Returns the id of a box for plotly. Without the prefix, plotly would read the id as a number.
  const box = (row) => (row < 0 ? "" : `row ${row}`);
  const rowOf = (id) => (id.startsWith("row ") ? Number(id.slice(4)) : -1);

  const nested = (figure, state, tools) => {
    const weight = figure.weights[state.weight], { colour, layout, escaped, cut } = tools;
    const share = page.say("{share} of the total", { share: "%{customdata[1]}" });
    const all = weight.sizes.reduce((sum, size, row) => (figure.parents[row] < 0 ? sum + size : sum), 0) || 1;
    const traces = [{
      type: figure.kind === "icicle" ? "icicle" : "sunburst",
      branchvalues: "total", sort: false, tiling: { orientation: "v" },
      ids: figure.labels.map((_, row) => box(row)),
      labels: figure.labels.map((name) => escaped(cut(name, 80))),
      hovertext: figure.labels.map((name) => whole(name, tools)),
      parents: figure.parents.map(box),
      level: box(state.open),
      values: weight.sizes,
      customdata: weight.values.map((value, row) => [page.units.quantity(value, figure.unit), page.units.share(weight.sizes[row] / all)]),
      marker: { colors: colours(figure, state, tools), line: { width: 1, color: colour("--card") } },
      textfont: { color: colour("--ink") }, insidetextfont: { color: colour("--ink") }, pathbar: { textfont: { color: colour("--ink") } },
      hovertemplate: `%{hovertext}<br>${weight.name}: %{customdata[0]}<br>${share}<extra></extra>`,
    }];
    return [traces, layout({ margin: { l: 4, r: 4, t: 24, b: 4 }, uniformtext: { minsize: 9, mode: "hide" } })];
  };

  // Returns the rows to draw as bars, with the largest row first.
  const shown = (figure, state) => {
    const { values } = figure.weights[state.weight];
    return children(figure, state.open).filter((row) => values[row]).sort((a, b) => values[b] - values[a]).slice(0, MOST_BARS);
  };

  const bars = (figure, state, tools) => {
    const { of, layout, axis, escaped } = tools;
    const weight = figure.weights[state.weight], rows = shown(figure, state), positions = rows.map((_, position) => position);
    const highlighted = colours(figure, state, tools);
    const traces = [{
      type: "bar", orientation: "h", y: positions, x: rows.map((row) => weight.values[row]), ids: rows.map(String),
      customdata: rows.map((row) => [whole(figure.labels[row], tools), page.units.quantity(weight.values[row], figure.unit)]),
      marker: { color: rows.map((row) => (state.text ? highlighted[row] : of(children(figure, row).length ? weight.colour : "other"))) },
      hovertemplate: "%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
    }];
    return [traces, layout({
      bargap: 0.25,
      xaxis: axis({ title: { text: `${weight.name} (${figure.unit})` }, rangemode: "tozero" }),
      yaxis: axis({ tickvals: positions, ticktext: rows.map((row) => escaped(figure.short[row])), range: [Math.max(rows.length, 4) - 0.5, -0.5], showgrid: false, zeroline: false }),
    })];
  };

  Object.assign(page.charts, { children, rows: shown, rowOf });
  Object.assign(page.shapes, { icicle: nested, sunburst: nested, bars });
})();
