// Heat maps: ranks by steps, or ranks by parts of a step. The colour of a cell shows its number.
"use strict";
(() => {
  const WRITTEN = 16; // maximum number of rows and columns with numbers in the cells
  const OUTLINED = 100; // maximum number of rows for which marked rows are outlined

  const ticks = (names, most) => {
    const every = Math.ceil(names.length / most);
    const tickvals = names.map((_, position) => position).filter((position) => position % every === 0);
    return { tickvals, ticktext: tickvals.map((position) => names[position]) };
  };

  // Returns the number of column names that fit side by side.
  const columnTicks = ({ columns }) => Math.max(4, Math.min(24, Math.floor(150 / Math.max(...columns.map((name) => name.length)))));

  // Marked rows always have a label, in a warning colour.
  const rowTicks = (figure, of) => {
    const regular = ticks(figure.rows, 32), kept = regular.tickvals.filter((row) => !figure.marked.some((one) => one !== row && Math.abs(one - row) * 32 < figure.rows.length));
    const tickvals = [...new Set([...kept, ...figure.marked])].sort((a, b) => a - b);
    const name = (row) => (figure.marked.includes(row) ? `<span style="color:${of("more")}"><b>▶ ${figure.rows[row]}</b></span>` : figure.rows[row]);
    return { tickvals, ticktext: tickvals.map(name) };
  };

  const outlines = (figure, of) => (figure.rows.length > OUTLINED ? [] : figure.marked).map((row) => ({
    type: "rect", xref: "x", yref: "y", x0: -0.5, x1: figure.columns.length - 0.5, y0: row - 0.5, y1: row + 0.5,
    line: { color: of("more"), width: 2 }, fillcolor: "rgba(0,0,0,0)",
  }));

  const scale = (weight, { of, colour }) => {
    const numbers = weight.values.flat().filter((value) => value !== null);
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    if (low >= 0) return { zmin: lowest(low, high), zmax: high || 1, colorscale: [[0, colour("--card")], [1, of("total")]] };
    const most = Math.max(-low, high);
    return { zmin: -most, zmax: most, colorscale: [[0, of("less")], [0.5, colour("--card")], [1, of("more")]] };
  };

  // The colour scale begins at 0, unless all numbers are similar and their differences would be invisible.
  const lowest = (low, high) => (low > high / 2 ? low - (high - low) / 8 : 0);

  const heatmap = (figure, state, tools) => {
    const { of, colour, layout, axis } = tools;
    const weight = figure.weights[state.weight], few = figure.rows.length <= WRITTEN && figure.columns.length <= WRITTEN;
    const at = (one) => one.map((_, position) => position);
    const traces = [{
      type: "heatmap", z: weight.values, x: at(figure.columns), y: at(figure.rows), ...scale(weight, tools),
      customdata: figure.rows.map((row, r) => figure.columns.map((column, c) => [row, column, page.units.quantity(weight.values[r][c], weight.unit)])),
      text: few ? weight.values.map((row) => row.map((value) => (value === null ? "" : page.units.digits(value, weight.unit)))) : null,
      xgap: figure.columns.length > 60 ? 0 : 1, ygap: figure.rows.length > 100 ? 0 : 1, hoverongaps: false,
      texttemplate: few ? "%{text}" : "", textfont: { size: 11 },
      colorbar: { title: { text: weight.unit, side: "right" }, thickness: 12, outlinewidth: 0, tickfont: { color: colour("--ink") } },
      hovertemplate: `${figure.row_title} %{customdata[0]}, ${figure.column_title} %{customdata[1]}<br>${weight.name}: %{customdata[2]}<extra></extra>`,
    }];
    return [traces, layout({
      margin: { l: 56, r: 12, t: 8, b: 44 }, shapes: outlines(figure, of),
      xaxis: axis({ title: { text: figure.column_title }, showgrid: false, zeroline: false, ...ticks(figure.columns, columnTicks(figure)) }),
      yaxis: axis({ title: { text: figure.row_title }, showgrid: false, zeroline: false, range: [figure.rows.length - 0.48, -0.52], ...rowTicks(figure, of) }),
    })];
  };

  Object.assign(page.shapes, { heatmap });
})();
