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
    this.soon();
  }

  find() { this.finder.find(this.search.value, this.part()); this.soon(); }
  next() { this.go(this.finder.next()); }

  // Selects a box and makes it visible.
  go(box) {
    if (box < 0) return;
    this.choose(box);
    this.view.centre(box);
    const { y } = this.view.laneOf(box), above = TimelineView.RULER + TimelineView.TITLE;
    if (y < this.view.top + above || y + TimelineView.BAR > this.view.top + this.view.window) this.drawing.scrollTop = y - above;
    this.moved();
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

for (const place of document.querySelectorAll(".timeline")) {
  const data = JSON.parse(document.getElementById(`${place.id}-data`).textContent);
  timelineData.decoded(data).then(
    (ready) => { place.timeline = new Timeline(place, ready); place.dataset.ready = "1"; },
    (error) => { place.querySelector(".status").textContent = page.say("The timeline cannot be drawn: {error}", { error }); },
  );
}
