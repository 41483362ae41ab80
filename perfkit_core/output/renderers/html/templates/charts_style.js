// The style of charts: colours for light mode, dark mode and paper, and escaped text for plotly.
"use strict";
page.charts = (() => {
  const SPARE = 8; // --of-spare-0 to --of-spare-7
  // On paper, the colours are those of the light mode: an element of the class "paper" has them also in dark mode.
  const paper = document.body.appendChild(Object.assign(document.createElement("i"), { className: "paper", hidden: true }));
  let printing = false;
  const colour = (name) => (printing ? getComputedStyle(paper).getPropertyValue(name).trim() : page.colour(name));
  const of = (name) => colour(`--of-${name}`);
  const spare = (form) => Array.from({ length: SPARE }, (_, number) => colour(`--${form}-spare-${number}`));
  const axis = (more) => ({ gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--line"), automargin: true, ...more });

  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most / 2)}…${text.slice(1 - most / 2)}`);
  // Splits a long text into lines for a tooltip.
  const lines = (text, wide) => text.match(new RegExp(`.{1,${wide}}`, "gsu"))?.slice(0, 12) ?? [];
  const layout = (more) => ({
    font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 56, r: 12, t: 8, b: 44 },
    legend: { orientation: "h", traceorder: "normal", y: 1.02, yanchor: "bottom", x: 0 },
    hoverlabel: { align: "left", namelength: -1 },
    ...more,
  });

  return {
    print: (now) => { printing = now; },
    // The drawing tools in the current colour mode of the page.
    tools: () => ({ soft: spare("soft"), of, colour, axis, layout, escaped, cut, lines }),
  };
})();
