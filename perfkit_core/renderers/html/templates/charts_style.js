// The style of charts: colours for light mode, dark mode and paper, and escaped text for plotly.
"use strict";
page.charts = (() => {
  const palettes = {
    light: ["#2f6db3", "#d98324", "#3d9970", "#a05195", "#8a93a1", "#c44536", "#7a9e2e", "#4d9db4"],
    dark: ["#79aee8", "#e8a75c", "#6fc19d", "#c98ac0", "#7f8998", "#e57f73", "#b5cf6b", "#8fcfdf"],
  };
  const soft = { light: ["#c9dcf1", "#f3dcc0", "#cbe6d8", "#e3cfdf", "#dde1e6"], dark: ["#2c4a6b", "#6b4a24", "#2f5a45", "#593f5d", "#3b4552"] };
  const paper = { "--ink": "#1c2430", "--line": "#dfe3e8", "--card": "#ffffff", "--accent": "#2f6db3" };
  let printing = false;
  const mode = () => (page.dark.matches && !printing ? "dark" : "light");
  const colour = (name) => (printing && paper[name]) || page.colour(name);
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
    tools: () => ({ palette: palettes[mode()], soft: soft[mode()], colour, axis, layout, escaped, cut, lines }),
  };
})();
