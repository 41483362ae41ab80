// Achieved FLOP/s over arithmetic intensity, on logarithmic axes. A roof is the slope of the memory, up to a peak of a number type.
"use strict";
page.shapes.roofline = (figure, _, { of, colour, layout, axis, escaped }) => {
  const SMALL = 7, LARGE = 26, SAMPLES = 64; // pixels, pixels, points of a roof
  const slopes = figure.roofs.map((roof) => roof.peak / roof.slope); // FLOP/byte at the edge of each roof
  const low = Math.log10(Math.min(...figure.x)) - 0.3, high = Math.log10(Math.max(...figure.x, ...slopes.map((edge) => edge * 2))) + 0.2;
  const intensity = Array.from({ length: SAMPLES + 1 }, (_, at) => 10 ** (low + ((high - low) * at) / SAMPLES));
  const roofs = figure.roofs.map((roof, index) => {
    const x = [...intensity, slopes[index]].sort((a, b) => a - b);
    const said = `${roof.name} ${page.units.quantity(roof.peak, figure.unit)}`;
    return {
      type: "scatter", mode: "lines+text", x, y: x.map((one) => Math.min(one * roof.slope, roof.peak)), line: { color: colour("--ink"), width: 1.5 },
      text: x.map((_, at) => (at === x.length - 1 ? escaped(said) : "")), textposition: "top left", textfont: { color: colour("--ink"), size: 11 },
      showlegend: false,
      hovertemplate: `${escaped(roof.name)}: ${page.units.quantity(roof.peak, figure.unit)}, ${page.units.quantity(roof.slope * 1000, "GB/s")}<extra></extra>`,
    };
  });
  const kinds = [...new Set(figure.kinds)];
  const dots = kinds.map((kind) => {
    const chosen = figure.kinds.flatMap((one, row) => (one === kind ? [row] : []));
    return {
      type: "scatter", mode: "markers", name: escaped(kind), x: chosen.map((row) => figure.x[row]), y: chosen.map((row) => figure.y[row]),
      marker: {
        color: of(figure.colours[chosen[0]]), opacity: 0.7, line: { width: 1, color: colour("--ink") },
        size: chosen.map((row) => SMALL + (LARGE - SMALL) * Math.sqrt(figure.sizes[row])),
      },
      customdata: chosen.map((row) => [escaped(figure.names[row]), escaped(figure.shapes[row]), figure.times[row], page.units.quantity(figure.y[row], figure.unit), page.units.digits(figure.x[row], "")]),
      hovertemplate: "%{customdata[0]}<br>%{customdata[1]}<br>%{customdata[2]}, %{customdata[3]}, %{customdata[4]} FLOP/byte<extra></extra>",
    };
  });
  return [[...roofs, ...dots], layout({
    hovermode: "closest", showlegend: true,
    xaxis: axis({ type: "log", title: { text: escaped(figure.x_title) }, range: [low, high] }),
    yaxis: axis({ type: "log", title: { text: `${escaped(figure.y_title)} (${figure.unit})` } }),
  })];
};
