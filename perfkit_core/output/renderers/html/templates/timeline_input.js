// Mouse and keyboard input of a timeline.
"use strict";
const timelineInput = (() => {
  const MOVED = 3; // maximum movement of a click in pixels; more is a drag

  const wheel = (timeline) => (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== timeline.canvas) return; // the page scrolls instead
    event.preventDefault();
    timeline.zoom(Math.exp(event.deltaY / 400), timeline.view.time(event.offsetX));
  };

  const mouse = (timeline) => {
    const { canvas, view, drawing } = timeline;
    let grabbed = null;
    const down = (event) => {
      canvas.focus({ preventScroll: true });
      canvas.setPointerCapture(event.pointerId);
      grabbed = { x: event.offsetX, y: event.clientY, from: view.from, top: drawing.scrollTop, moved: false };
    };
    const move = (event) => {
      if (!grabbed) return timeline.point(view.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
      const by = event.offsetX - grabbed.x, down = event.clientY - grabbed.y;
      grabbed.moved ||= Math.max(Math.abs(by), Math.abs(down)) > MOVED;
      if (!grabbed.moved) return;
      drawing.scrollTop = grabbed.top - down;
      timeline.look(grabbed.from - by * view.scale, view.span);
    };
    const up = (event) => {
      if (grabbed && !grabbed.moved) timeline.choose(view.at(event.offsetX, event.offsetY));
      grabbed = null;
    };
    const left = () => timeline.point(-1);
    const twice = (event) => timeline.fit(view.at(event.offsetX, event.offsetY));
    const listeners = { pointerdown: down, pointermove: move, pointerup: up, pointercancel: up, pointerleave: left, dblclick: twice };
    for (const [name, run] of Object.entries(listeners)) canvas.addEventListener(name, run);
    canvas.addEventListener("wheel", wheel(timeline), { passive: false });
  };

  const moves = (timeline) => {
    const { view } = timeline, middle = () => view.from + view.span / 2;
    const aside = (share) => () => timeline.look(view.from + view.span * share, view.span);
    const near = () => timeline.zoom(0.5, middle());
    return {
      "+": near, "=": near, "-": () => timeline.zoom(2, middle()), ArrowLeft: aside(-0.2), ArrowRight: aside(0.2),
      Home: () => timeline.whole(), Enter: () => timeline.fit(timeline.chosen), Escape: () => timeline.choose(-1),
      ".": () => timelineWalking.walk(timeline, 1), ",": () => timelineWalking.walk(timeline, -1),
      ArrowDown: () => timelineWalking.climb(timeline, 1), ArrowUp: () => timelineWalking.climb(timeline, -1),
    };
  };

  const keys = (timeline) => {
    const known = moves(timeline);
    timeline.canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(known, event.key)) return;
      event.preventDefault();
      known[event.key]();
    });
  };

  const controls = (timeline) => {
    const { select, search, place } = timeline;
    select.addEventListener("change", () => { timeline.unmark(); timeline.whole(); });
    search.addEventListener("input", () => timeline.unmark());
    search.addEventListener("keydown", (event) => { if (event.key === "Enter") timeline.next(); });
    place.querySelector(".whole").addEventListener("click", () => timeline.whole());
    place.querySelector(".save").addEventListener("click", () => timelineSaving.save(timeline.view.data));
    place.querySelector(".perfetto").addEventListener("click", () => timelineSaving.open(timeline.view.data, (text) => { timeline.status.textContent = text; }));
  };

  return { listen: (timeline) => { mouse(timeline); keys(timeline); controls(timeline); } };
})();
