// Draws each chart from the JSON beside it when it is about to be seen, in the colours of the page.
"use strict";
(() => {
  const palettes = {
    light: ["#2f6db3", "#d98324", "#3d9970", "#a05195", "#8a93a1", "#c44536", "#7a9e2e", "#4d9db4"],
    dark: ["#79aee8", "#e8a75c", "#6fc19d", "#c98ac0", "#7f8998", "#e57f73", "#b5cf6b", "#8fcfdf"],
  };
  const soft = { light: ["#c9dcf1", "#f3dcc0", "#cbe6d8", "#e3cfdf", "#dde1e6"], dark: ["#2c4a6b", "#6b4a24", "#2f5a45", "#593f5d", "#3b4552"] };
  const { dark, colour } = page;
  const mode = () => (dark.matches ? "dark" : "light");
  const config = { displayModeBar: false, responsive: true };
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"); // plotly reads HTML
  const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most / 2)}…${text.slice(1 - most / 2)}`);

  const layout = (more) => ({
    font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 56, r: 12, t: 8, b: 44 },
    legend: { orientation: "h", traceorder: "normal", y: 1.02, yanchor: "bottom", x: 0 },
    ...more,
  });
  const axis = (more) => ({ gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), automargin: true, ...more });

  const series = (figure) => {
    const palette = palettes[mode()], many = figure.series.length > 1;
    const every = Math.ceil(figure.x.values.length / 24);
    const ticks = figure.x.values.map((_, position) => position).filter((position) => position % every === 0);
    const traces = figure.series.map((one, index) => ({
      type: figure.kind === "bar" ? "bar" : "scatter",
      mode: figure.x.values.length > 100 ? "lines" : "lines+markers",
      name: one.name,
      x: figure.x.values.map((_, position) => position), // labels may repeat, positions do not
      customdata: figure.x.values,
      y: one.values,
      marker: { color: palette[index % palette.length] },
      hovertemplate: `${figure.x.title} %{customdata}: %{y:.4~g} ${figure.unit}<extra>${many ? "%{fullData.name}" : ""}</extra>`,
    }));
    return [traces, layout({
      barmode: figure.stacked ? "stack" : "group",
      bargap: 0.3,
      showlegend: many,
      xaxis: axis({ title: { text: figure.x.title }, showgrid: false, tickvals: ticks, ticktext: ticks.map((position) => figure.x.values[position]) }),
      yaxis: axis({ title: { text: figure.unit }, rangemode: "tozero" }),
    })];
  };

  // From total to total; the last total is reached by the differences before it.
  const waterfall = (figure) => {
    const palette = palettes[mode()], [traces, plan] = series(figure);
    for (const trace of traces) {
      trace.type = "waterfall";
      trace.measure = figure.totals.map((total, position) => (total ? (position ? "total" : "absolute") : "relative"));
      trace.increasing = { marker: { color: palette[5] } };
      trace.decreasing = { marker: { color: palette[2] } };
      trace.totals = { marker: { color: palette[0] } };
      trace.connector = { line: { color: colour("--line") } };
      delete trace.marker;
      delete trace.mode;
    }
    plan.yaxis.range = levels(figure);
    return [traces, plan];
  };

  // The axis begins at 0, unless the differences would be too small to be seen.
  const levels = (figure) => {
    let level = 0;
    const reached = figure.series[0].values.map((value, position) => (level = figure.totals[position] ? value : level + value));
    const [low, high] = [Math.min(...reached), Math.max(...reached)];
    const spread = high - low || high || 1;
    return [low > spread ? low - spread : Math.min(0, low), high + spread / 10];
  };

  const ranking = (figure) => {
    const names = figure.x.values, positions = names.map((_, position) => position);
    const traces = [{
      type: "bar", orientation: "h", y: positions, x: figure.series[0].values, customdata: names,
      marker: { color: palettes[mode()][0] }, hovertemplate: `%{customdata}<br>%{x:.4~g} ${figure.unit}<extra></extra>`,
    }];
    return [traces, layout({
      bargap: 0.25,
      xaxis: axis({ title: { text: `${figure.series[0].name} (${figure.unit})` }, rangemode: "tozero" }),
      yaxis: axis({ tickvals: positions, ticktext: figure.short, autorange: "reversed", showgrid: false }),
    })];
  };

  const share = (figure) => {
    const palette = palettes[mode()], { values } = figure.series[0];
    const whole = values.reduce((sum, value) => sum + (value ?? 0), 0) || 1;
    const traces = figure.x.values.map((name, index) => ({
      type: "bar", orientation: "h", name, y: [0], x: [values[index]], marker: { color: palette[index % palette.length] },
      text: values[index] / whole > 0.06 ? `${(100 * values[index] / whole).toFixed(0)} %` : "", textposition: "inside",
      insidetextanchor: "middle", insidetextfont: { color: "#fff" },
      hovertemplate: `%{x:.4~g} ${figure.unit}, ${(100 * values[index] / whole).toFixed(1)} %<extra>${name}</extra>`,
    })).filter((_, index) => values[index]);
    return [traces, layout({
      barmode: "stack", showlegend: true, margin: { l: 8, r: 8, t: 8, b: 8 },
      xaxis: { visible: false, range: [0, whole] }, yaxis: { visible: false },
    })];
  };

  const hierarchy = (figure, state) => {
    const weight = figure.weights[state.weight], colours = soft[mode()], depth = [];
    figure.parents.forEach((above, row) => depth.push(above < 0 ? 0 : depth[above] + 1));
    const wanted = state.text.toLowerCase();
    const matches = (name) => wanted !== "" && name.toLowerCase().includes(wanted);
    const colourOf = (name, row) =>
      matches(name) ? palettes[mode()][1] : wanted ? colours[4] : colours[depth[row] % 4];
    const traces = [{
      type: figure.kind, branchvalues: "total", sort: false, tiling: { orientation: "v" },
      ids: figure.labels.map((_, row) => String(row)),
      labels: figure.labels.map((name) => escaped(cut(name, 80))),
      parents: figure.parents.map((above) => (above < 0 ? "" : String(above))),
      values: weight.sizes, customdata: weight.values, marker: { colors: figure.labels.map(colourOf), line: { width: 1, color: colour("--card") } },
      textfont: { color: colour("--ink") }, insidetextfont: { color: colour("--ink") }, pathbar: { textfont: { color: colour("--ink") } },
      hovertemplate: `%{label}<br>${weight.name}: %{customdata:.4~g} ${figure.unit}<br>%{percentRoot:.1%} of the whole<extra></extra>`,
    }];
    return [traces, layout({ margin: { l: 4, r: 4, t: 24, b: 4 }, uniformtext: { minsize: 9, mode: "hide" } })];
  };

  const controls = (place, figure, redraw) => {
    const state = { weight: 0, text: "" };
    if (!figure.weights) return state;
    const line = document.createElement("div"), select = document.createElement("select"), search = document.createElement("input");
    line.className = "chart-controls";
    select.append(...figure.weights.map((weight, index) => new Option(weight.name, index)));
    select.setAttribute("aria-label", "size of the boxes");
    select.addEventListener("change", () => { state.weight = Number(select.value); redraw(); });
    Object.assign(search, { type: "search", placeholder: "part of a name" });
    search.setAttribute("aria-label", "colour the boxes of this name");
    search.addEventListener("input", () => { state.text = search.value; redraw(); });
    line.append(select, search, "Click a box to zoom in, the bar above to zoom out.");
    if (figure.left_out) line.append(` ${figure.left_out} smaller rows are only in the table.`);
    place.before(line);
    return state;
  };

  const shapes = { bar: series, line: series, waterfall, ranking, share, icicle: hierarchy, sunburst: hierarchy };
  const draw = async (place) => {
    const Plotly = await page.plotting();
    const figure = JSON.parse(document.getElementById(`${place.id}-data`).textContent);
    const redraw = () => Plotly.react(place, ...shapes[figure.kind](figure, state), config);
    const state = controls(place, figure, redraw);
    redraw();
    place.dataset.ready = "1";
    dark.addEventListener("change", redraw);
  };
  page.whenSeen(document.querySelectorAll(".chart"), draw);
})();
