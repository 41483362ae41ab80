// A timeline in the page. It is redrawn when the view, the selected box or the box under the pointer changes.
"use strict";
class Timeline {
  constructor(place, data) {
    this.place = place;
    [this.drawing, this.canvas, this.tip, this.details, this.status, this.select, this.search] =
      [".drawing", "canvas", ".tip", ".details", ".status", "select", "input"].map((one) => place.querySelector(one));
    this.view = new TimelineView(data);
    this.finder = new TimelineSearch(data);
    this.chosen = this.hovered = -1;
    this.hint = this.details.textContent;
    this.pending = false;
    this.shown = place.querySelector(".marked");
    this.leads = place.querySelector(".leads");
    place.querySelector(".tall").style.height = `${this.view.height}px`;
    timelineInput.listen(this);
    new ResizeObserver(() => this.draw()).observe(this.drawing);
    this.drawing.addEventListener("scroll", () => this.soon());
    page.dark.addEventListener("change", () => this.draw());
    addEventListener("beforeprint", () => this.onPaper(true));
    addEventListener("afterprint", () => this.onPaper(false));
    this.whole();
    this.draw();
  }

  // Draws as many rows as fit on a printed page.
  onPaper(printing) {
    this.drawing.classList.toggle("paper", printing);
    this.draw();
  }

  part() { return this.view.data.parts[Number(this.select.value)]; }
  whole() { this.view.show(this.part()); this.moved(); }
  look(from, span) { this.view.look(from, span); this.moved(); }
  zoom(factor, around) { this.view.zoom(factor, around); this.moved(); }

  fit(box) {
    if (box < 0) return;
    this.view.fit(box);
    this.moved();
  }

  // The view has moved, so the pointer is at another box.
  moved() {
    this.tip.hidden = true;
    this.hovered = -1;
    this.soon();
  }

  point(box, x, y) {
    this.tip.hidden = box < 0;
    if (box >= 0) {
      this.tip.textContent = timelineTexts.hover(this.view.data, box);
      this.placeTip(x, y);
    }
    if (box !== this.hovered) this.soon();
    this.hovered = box;
  }

  // Places the tooltip next to the pointer and inside the drawing.
  placeTip(x, y) {
    const { offsetWidth, offsetHeight, style } = this.tip, { width, window, top } = this.view;
    const below = y + 14 + offsetHeight <= window;
    style.left = `${Math.max(Math.min(x + 12, width - offsetWidth - 4), 0)}px`;
    style.top = `${top + (below ? y + 14 : Math.max(y - offsetHeight - 8, 0))}px`;
  }

  choose(box) {
    this.chosen = box;
    this.details.textContent = box < 0 ? this.hint : timelineTexts.details(this.view.data, box);
    this.details.classList.toggle("told", box >= 0);
    this.lead(box);
    this.soon();
  }

  // Shows links to the operator or kernel, layer, line of code and advice of a box.
  async lead(box) {
    const { things, made } = page, data = await things.ready();
    if (box !== this.chosen) return;
    const found = box < 0 ? [] : timelineData.thingsOf(this.view.data, box).filter(([kind, name]) => things.known(data, kind, name));
    this.leads.replaceChildren(...found.map(([kind, name]) => {
      const said = things.label(data, kind, name);
      return made("span", {}, `${data.kinds[kind].title}: `, made("a", { href: things.address(data, kind, name), title: said }, made("bdi", { textContent: said })));
    }));
  }

  boxes(kind, name) { return timelineData.boxesOf(this.view.data, kind, name); }

  // Highlights the boxes of a thing and selects the longest of them. A step is shown as a whole instead.
  mark(kind, name, label) {
    const { data } = this.view, of = kind === "step" ? timelineData.partOf(data, name) : -1;
    if (kind === "step") {
      this.unmark();
      if (of >= 0) this.select.value = of;
      return this.whole();
    }
    const boxes = this.boxes(kind, name);
    if (!boxes.length) return;
    const inside = (part) => boxes.filter((box) => timelineData.inside(data, box, part));
    let part = Number(this.select.value);
    if (!inside(data.parts[part]).length) part = Math.max(data.parts.findIndex((one) => inside(one).length), 0);
    this.select.value = part;
    this.search.value = "";
    this.finder.mark(boxes, data.parts[part]);
    const { made, say } = page, next = made("button", { type: "button", textContent: say("Next") }), clear = made("a", { href: "#timeline", textContent: say("Clear") });
    next.addEventListener("click", () => this.next());
    this.shown.replaceChildren(say("Highlighted: {name} ({count} boxes)", { name: label, count: page.units.count(boxes.length) }), " ", next, " ", clear);
    this.shown.hidden = false;
    this.whole();
    const longest = inside(data.parts[part]).reduce((best, box) => (best < 0 || data.dur_ns[box] > data.dur_ns[best] ? box : best), -1);
    this.choose(longest);
    if (longest >= 0) this.scroll(longest);
  }

  unmark() {
    this.shown.hidden = true;
    this.find();
  }

  find() { this.finder.find(this.search.value, this.part()); this.soon(); }
  next() { this.go(this.finder.next()); }

  // Selects a box and makes it visible.
  go(box) {
    if (box < 0) return;
    this.choose(box);
    this.view.centre(box);
    this.scroll(box);
    this.moved();
  }

  scroll(box) {
    const { y } = this.view.laneOf(box), above = TimelineView.RULER + TimelineView.TITLE;
    const { top } = this.view, window = this.view.window || this.drawing.clientHeight;
    if (y < top + above || y + TimelineView.BAR > top + window) this.drawing.scrollTop = y - above;
  }

  soon() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    const { view, drawing } = this;
    this.pending = false;
    if (!drawing.clientWidth) return;
    [view.width, view.window, view.top] = [drawing.clientWidth, Math.min(drawing.clientHeight, view.height), drawing.scrollTop];
    this.canvas.style.height = `${view.window}px`;
    this.drawn = timelineDrawing.draw(this.canvas, view, { chosen: this.chosen, hovered: this.hovered, matches: this.finder.matches });
    this.status.textContent = timelineTexts.status(view, this.drawn, this.finder.matches && this.finder.found);
  }
}

// Returns the timeline of the page. It is made when it is first needed.
page.timeline = page.once(async () => {
  const place = document.querySelector(".timeline");
  try {
    const data = JSON.parse(document.getElementById(`${place.id}-data`).textContent);
    place.timeline = new Timeline(place, await timelineData.decoded(data));
    place.dataset.ready = "1";
  } catch (error) {
    place.querySelector(".status").textContent = page.say("The timeline cannot be drawn: {error}", { error });
  }
  return place.timeline;
});
page.whenSeen(document.querySelectorAll(".timeline"), page.timeline);
