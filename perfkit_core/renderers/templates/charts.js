// Draws each chart from the JSON beside it, in the colours of the page; again when light and dark change.
"use strict";
(() => {
  const palettes = {
    light: ["#2f6db3", "#d98324", "#3d9970", "#a05195", "#8a93a1", "#c44536"],
    dark: ["#79aee8", "#e8a75c", "#6fc19d", "#c98ac0", "#7f8998", "#e57f73"],
  };
  const { dark, colour } = page;

  // From total to total; the last total is reached by the differences before it.
  const asWaterfall = (trace, figure, palette) => {
    trace.type = "waterfall";
    trace.measure = figure.totals.map((total, position) => (total ? (position ? "total" : "absolute") : "relative"));
    trace.increasing = { marker: { color: palette[5] } };
    trace.decreasing = { marker: { color: palette[2] } };
    trace.totals = { marker: { color: palette[0] } };
    trace.connector = { line: { color: colour("--line") } };
    delete trace.marker;
    delete trace.mode;
  };

  // The axis begins at 0, unless the differences would be too small to be seen.
  const levels = (figure) => {
    let level = 0;
    const reached = figure.series[0].values.map((value, position) => (level = figure.totals[position] ? value : level + value));
    const [low, high] = [Math.min(...reached), Math.max(...reached)];
    const spread = high - low || high || 1;
    return [low > 4 * spread ? low - spread : Math.min(0, low), high + spread / 10];
  };

  const draw = async (place) => {
    const Plotly = await page.plotting();
    const figure = JSON.parse(document.getElementById(place.id + "-data").textContent);
    const palette = palettes[dark.matches ? "dark" : "light"];
    const every = Math.ceil(figure.x.values.length / 24);
    const ticks = figure.x.values.map((_, position) => position).filter((position) => position % every === 0);
    const many = figure.series.length > 1;
    const traces = figure.series.map((series, index) => ({
      type: figure.kind === "bar" ? "bar" : "scatter",
      mode: "lines+markers",
      name: series.name,
      x: figure.x.values.map((_, position) => position), // labels may repeat, positions do not
      customdata: figure.x.values,
      y: series.values,
      marker: { color: palette[index % palette.length] },
      hovertemplate: `${figure.x.title} %{customdata}: %{y:.4~g} ${figure.unit}<extra>${many ? "%{fullData.name}" : ""}</extra>`,
    }));
    const waterfall = figure.kind === "waterfall";
    if (waterfall) traces.forEach((trace) => asWaterfall(trace, figure, palette));
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), automargin: true };
    Plotly.react(place, traces, {
      barmode: figure.stacked ? "stack" : "group",
      bargap: 0.3,
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 56, r: 12, t: 8, b: 44 },
      showlegend: many,
      legend: { orientation: "h", traceorder: "normal", y: 1.02, yanchor: "bottom", x: 0 },
      xaxis: { ...axis, title: { text: figure.x.title }, showgrid: false, tickvals: ticks, ticktext: ticks.map((position) => figure.x.values[position]) },
      yaxis: { ...axis, title: { text: figure.unit }, rangemode: "tozero", ...(waterfall ? { range: levels(figure) } : {}) },
    }, { displayModeBar: false, responsive: true });
  };

  page.whenSeen(document.querySelectorAll(".chart"), (place) => {
    draw(place);
    dark.addEventListener("change", () => draw(place));
  });
})();
