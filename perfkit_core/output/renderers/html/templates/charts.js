// Draws each chart from its JSON when the chart becomes visible, and all charts before printing.
"use strict";
(() => {
  const PAPER = 680; // pixels
  const config = { displayModeBar: false };
  const places = [...document.querySelectorAll(".chart")], drawn = new Map(), widths = new Map();

  // Charts follow their own width. Plotly's option "responsive" follows only the window, and while a chart is drawn it may
  // miss a change.
  const resized = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const width = Math.round(contentRect.width);
      if (!width || width === widths.get(target)) continue; // hidden, or only its height has changed
      widths.set(target, width);
      window.Plotly.Plots.resize(target);
    }
  });

  const shape = (figure, state) => page.shapes[state.form === "bars" ? "bars" : figure.kind === "opening" ? "sunburst" : figure.kind];

  // A click on a bar of a thing leads to the thing: a step in the timeline, a kernel in its table.
  const linked = (place, { x }) => {
    if (!x?.thing) return;
    place.classList.add("linked");
    place.on("plotly_click", async ({ points: [point] }) => {
      const { things } = page, data = await things.ready(), name = x.names[point.pointNumber];
      if (!things.known(data, x.thing, name)) return;
      location.hash = x.thing === "step" && things.timeline ? things.inTimeline(x.thing, name) : things.address(data, x.thing, name);
    });
  };

  const start = (place) => {
    if (drawn.has(place)) return;
    const figure = JSON.parse(document.getElementById(`${place.id}-data`).textContent);
    const redraw = (more = {}) => {
      const [traces, layout] = shape(figure, state)(figure, state, page.charts.tools());
      window.Plotly.react(place, traces, { ...layout, ...more }, config);
      state.update(state);
    };
    const [state, listen] = page.charts.controls(place, figure, () => redraw());
    drawn.set(place, redraw);
    widths.set(place, Math.round(place.getBoundingClientRect().width));
    redraw();
    resized.observe(place);
    listen();
    linked(place, figure);
    place.dataset.ready = "1";
  };

  const draw = async (place) => {
    await page.plotting();
    start(place);
  };

  const print = () => {
    if (!window.Plotly) return;
    page.charts.print(true);
    places.forEach(start);
    for (const [place, redraw] of drawn) redraw({ width: Math.min(PAPER, place.clientWidth || PAPER) });
  };

  const printed = () => {
    page.charts.print(false);
    for (const [place, redraw] of drawn) {
      redraw();
      window.Plotly.Plots.resize(place);
    }
  };

  page.whenSeen(places, draw);
  page.dark.addEventListener("change", () => drawn.forEach((redraw) => redraw()));
  addEventListener("beforeprint", print);
  addEventListener("afterprint", printed);
  // A page cannot load the library while it is printed, so the library is loaded as soon as the browser is idle.
  addEventListener("load", () => (window.requestIdleCallback ?? setTimeout)(() => page.plotting()));
})();
