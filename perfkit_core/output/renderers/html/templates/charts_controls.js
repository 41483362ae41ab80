// The controls of a chart: the number shown, the chart type, the open row, and the text to highlight.
"use strict";
page.charts.controls = (() => {
  const MOST_OPEN = 200; // maximum number of rows in the list; a click can open every row
  const { children, rows, rowOf } = page.charts, { cut } = page.charts.tools();

  const choice = (label, names, chosen) => {
    const select = document.createElement("select");
    select.append(...names.map((name, index) => new Option(name, index)));
    select.setAttribute("aria-label", label);
    select.addEventListener("change", () => chosen(Number(select.value)));
    return select;
  };

  const finder = (highlight) => {
    const search = document.createElement("input");
    Object.assign(search, { type: "search", placeholder: page.say("part of a name") });
    search.setAttribute("aria-label", page.say("highlight boxes whose name contains this text"));
    search.addEventListener("input", () => highlight(search.value));
    return search;
  };

  // Creates the list of rows that have children, with the outermost rows first. The row -1 is the entire tree.
  const opener = (figure, open) => {
    const inner = [...new Set(figure.parents.filter((above) => above >= 0))];
    const depth = (row) => (row < 0 ? -1 : depth(figure.parents[row]) + 1);
    const listed = inner.map((row) => [depth(row), row]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, MOST_OPEN).map(([, row]) => row);
    const select = document.createElement("select"), back = document.createElement("button");
    select.append(new Option(page.say("all"), -1), ...listed.map((row) => new Option(cut(figure.labels[row], 60), row)));
    select.setAttribute("aria-label", page.say("open"));
    select.addEventListener("change", () => open(Number(select.value)));
    Object.assign(back, { type: "button", textContent: page.say("Back"), disabled: true });
    const update = (state) => {
      if (state.open >= 0 && !listed.includes(state.open)) {
        select.append(new Option(cut(figure.labels[state.open], 60), state.open));
        listed.push(state.open);
      }
      select.value = state.open;
      back.disabled = state.open < 0;
    };
    return { select, back, update };
  };

  const tree = (place, line, figure, state, redraw) => {
    const open = (row) => {
      state.open = row;
      redraw();
    };
    const up = () => state.open >= 0 && open(figure.parents[state.open]);
    const { select, back, update } = opener(figure, open);
    back.addEventListener("click", up);
    line.addEventListener("keydown", (event) => { if (event.key === "Escape" && event.target.type !== "search") up(); });
    state.update = update;
    if (figure.kind !== "icicle") {
      const forms = figure.kind === "opening" ? ["bars", "rings"] : ["rings", "bars"];
      const names = { bars: page.say("bars"), rings: page.say("rings") };
      state.form = forms[0];
      line.append(choice(page.say("chart type"), forms.map((form) => names[form]), (at) => { state.form = forms[at]; redraw(); }));
    }
    line.append(select, back, finder((text) => { state.text = text; redraw(); }));
    line.append(page.say("Click a box or a bar to open it."));
    if (figure.left_out) line.append(" ", page.say("The table contains {count} smaller rows that are not drawn.", { count: figure.left_out }));
  };

  // A click opens a bar here. Plotly itself opens boxes and rings, and this function only updates the list.
  const listen = (place, figure, state, redraw) => {
    place.on("plotly_click", ({ points: [point] }) => {
      if (state.form !== "bars") return;
      const row = rows(figure, state)[point.pointNumber];
      if (!children(figure, row).length) return;
      state.open = row;
      redraw();
    });
    for (const kind of ["sunburst", "icicle"]) place.on(`plotly_${kind}click`, ({ nextLevel }) => {
      if (nextLevel === undefined) return; // the box has no children
      state.open = rowOf(nextLevel);
      state.update(state);
    });
  };

  // Returns the state that the controls change, and a function that listens to clicks after the chart was drawn.
  return (place, figure, redraw) => {
    const state = { weight: 0, text: "", open: -1, form: "", update: () => {} };
    if (!figure.weights) return [state, () => {}];
    const line = document.createElement("div");
    line.className = "chart-controls";
    const names = figure.weights.map((weight) => weight.name);
    if (names.length > 1) line.append(choice(figure.parents ? page.say("size of the boxes") : page.say("numbers shown"), names, (at) => { state.weight = at; redraw(); }));
    if (figure.parents) tree(place, line, figure, state, redraw);
    if (line.childNodes.length) place.before(line);
    return [state, () => figure.parents && listen(place, figure, state, redraw)];
  };
})();
