// Draws each timeline from the columns beside it: rows of boxes, to zoom, move about, point at and save.
"use strict";
(() => {
  const BAR = 17, GAP = 6, TITLE = 18, RULER = 22, NARROW = 3;
  const palettes = {
    light: ["#9db8d9", "#e6b98a", "#9fcbb4", "#cfa9c8", "#e5a59c", "#b9c0ca", "#d9cf8f", "#a8cfd6"],
    dark: ["#3d5f86", "#8a5f30", "#3d7558", "#75507a", "#8a4b44", "#515b69", "#79712f", "#3d727b"],
  };
  const { dark, colour: paper } = page;
  const arrays = { f8: Float64Array, i4: Int32Array, u2: Uint16Array };

  const decoded = async (data) => {
    const buffer = await page.unpacked(data.data);
    let at = 0;
    for (const [name, type] of data.columns) {
      data[name] = new arrays[type](buffer, at, data.count);
      at += data[name].byteLength;
    }
    return data;
  };

  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const duration = (ns) => {
    const [size, unit] = units.find(([size]) => Math.abs(ns) >= size) ?? units[3];
    return `${Number((ns / size).toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 3 })} ${unit}`;
  };

  // The boxes of one depth of one row follow each other in time: a lane. Its ends ascend, so views are found by halving.
  const lanes = (data) => {
    const found = [];
    for (let i = 0; i < data.count; i++) {
      const last = found.at(-1);
      if (last && last.row === data.row[i] && last.depth === data.depth[i]) last.end = i + 1;
      else found.push({ row: data.row[i], depth: data.depth[i], begin: i, end: i + 1, y: 0 });
    }
    return found;
  };

  const firstEndingAfter = (data, lane, time) => {
    let [low, high] = [lane.begin, lane.end];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.start_ns[middle] + data.dur_ns[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  class Timeline {
    constructor(place, data) {
      this.data = data;
      this.lanes = lanes(data);
      this.canvas = place.querySelector("canvas");
      this.tip = place.querySelector(".tip");
      this.details = place.querySelector(".details");
      this.status = place.querySelector(".status");
      this.select = place.querySelector("select");
      this.search = place.querySelector("input");
      this.place = place;
      this.hovered = -1;
      this.chosen = -1;
      this.placeLanes();
      this.listen();
      this.show(Number(this.select.value));
    }

    placeLanes() {
      let y = RULER, row = -1, group = "";
      this.titles = [];
      for (const lane of this.lanes) {
        if (lane.row !== row) {
          const [name, thread] = this.data.rows[lane.row];
          y += row < 0 ? 0 : GAP;
          this.titles.push({ y, text: name === group ? thread : `${name} · ${thread}` });
          [row, group] = [lane.row, name];
          y += TITLE;
          this.top = y;
        }
        lane.y = this.top + lane.depth * BAR;
        y = Math.max(y, lane.y + BAR);
      }
      this.height = y + GAP;
      this.canvas.style.height = `${this.height}px`;
    }

    listen() {
      const canvas = this.canvas;
      const redraw = () => this.draw();
      new ResizeObserver(redraw).observe(canvas);
      dark.addEventListener("change", redraw);
      this.select.addEventListener("change", () => { this.find(); this.show(Number(this.select.value)); });
      this.search.addEventListener("input", () => this.find());
      this.search.addEventListener("keydown", (event) => { if (event.key === "Enter") this.next(); });
      this.place.querySelector(".save").addEventListener("click", () => this.save());
      this.place.querySelector(".whole").addEventListener("click", () => this.show(Number(this.select.value)));
      canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return; // else the page scrolls
        event.preventDefault();
        this.zoom(Math.exp(event.deltaY / 400), this.time(event.offsetX));
      }, { passive: false });
      canvas.addEventListener("pointerdown", (event) => {
        canvas.focus({ preventScroll: true });
        canvas.setPointerCapture(event.pointerId);
        this.grabbed = { x: event.offsetX, from: this.from, moved: false };
      });
      canvas.addEventListener("pointermove", (event) => this.moved(event));
      canvas.addEventListener("pointerup", (event) => {
        if (this.grabbed && !this.grabbed.moved) this.choose(this.at(event.offsetX, event.offsetY));
        this.grabbed = null;
      });
      canvas.addEventListener("pointerleave", () => this.point(-1));
      canvas.addEventListener("dblclick", (event) => this.fit(this.at(event.offsetX, event.offsetY)));
      canvas.addEventListener("keydown", (event) => this.key(event));
    }

    moved(event) {
      if (!this.grabbed) {
        this.point(this.at(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
        return;
      }
      const by = event.offsetX - this.grabbed.x;
      this.grabbed.moved ||= Math.abs(by) > NARROW;
      if (this.grabbed.moved) this.look(this.grabbed.from - by * this.scale, this.span);
    }

    key(event) {
      const middle = this.from + this.span / 2;
      const steps = {
        "+": () => this.zoom(0.5, middle), "=": () => this.zoom(0.5, middle), "-": () => this.zoom(2, middle),
        ArrowLeft: () => this.look(this.from - this.span / 5, this.span),
        ArrowRight: () => this.look(this.from + this.span / 5, this.span),
        Home: () => this.show(Number(this.select.value)),
        Enter: () => this.fit(this.chosen),
        Escape: () => this.choose(-1),
      };
      if (!(event.key in steps)) return;
      event.preventDefault();
      steps[event.key]();
    }

    get scale() { return this.span / this.canvas.clientWidth; } // ns a pixel
    time(x) { return this.from + x * this.scale; }
    x(time) { return (time - this.from) / this.scale; }

    show(part) {
      const [, start, end] = this.data.parts[part];
      const margin = (end - start) * 0.01;
      this.look(start - margin, end - start + 2 * margin);
    }

    zoom(factor, around) {
      const span = Math.max(this.span * factor, 100);
      this.look(around - (around - this.from) * (span / this.span), span);
    }

    look(from, span) {
      [this.from, this.span] = [from, span];
      requestAnimationFrame(() => this.draw());
    }

    fit(box) {
      if (box < 0) return;
      const width = Math.max(this.data.dur_ns[box], 10);
      this.look(this.data.start_ns[box] - width * 0.1, width * 1.2);
    }

    at(x, y) {
      const lane = this.lanes.find((one) => y >= one.y && y < one.y + BAR && this.touched(one, x) >= 0);
      return lane ? this.touched(lane, x) : -1;
    }

    // The longest box within a pixel of the pointer.
    touched(lane, x) {
      const data = this.data, end = this.time(x + 1);
      let best = -1;
      for (let i = firstEndingAfter(data, lane, this.time(x - 1)); i < lane.end && data.start_ns[i] <= end; i++) {
        if (best < 0 || data.dur_ns[i] > data.dur_ns[best]) best = i;
      }
      return best;
    }

    point(box, x, y) {
      this.tip.hidden = box < 0;
      if (box >= 0) {
        this.tip.textContent = `${this.data.names[this.data.name[box]]}\n${duration(this.data.dur_ns[box])}`;
        this.tip.style.left = `${Math.min(x + 12, this.canvas.clientWidth - 220)}px`;
        this.tip.style.top = `${y + 14}px`;
      }
      if (box === this.hovered) return;
      this.hovered = box;
      this.draw();
    }

    choose(box) {
      this.chosen = box;
      const data = this.data, lines = [];
      if (box >= 0) {
        const [group, row] = data.rows[data.row[box]];
        lines.push(data.names[data.name[box]]);
        lines.push(`${data.kinds[data.kind[box]]}, ${duration(data.dur_ns[box])} (${data.dur_ns[box].toLocaleString("en")} ns)`);
        lines.push(`${group} · ${row}, ${duration(data.start_ns[box])} after the beginning`);
        if (data.cause[box] >= 0) lines.push(`launched by ${data.names[data.name[data.cause[box]]]}`);
        const work = this.launches(box);
        if (work.length) lines.push(`launched ${work.length}: ${data.names[data.name[work[0]]]}`);
      }
      this.details.textContent = lines.join("\n");
      this.draw();
    }

    launches(box) {
      const found = [];
      for (let i = 0; i < this.data.count; i++) if (this.data.cause[i] === box) found.push(i);
      return found;
    }

    find() {
      const text = this.search.value.toLowerCase();
      const wanted = this.data.names.map((name) => text !== "" && name.toLowerCase().includes(text));
      this.matches = text === "" ? null : wanted;
      this.found = [];
      const [, start, end] = this.data.parts[Number(this.select.value)]; // of the step that is chosen
      const inside = (i) => this.data.start_ns[i] < end && this.data.start_ns[i] + this.data.dur_ns[i] > start;
      if (this.matches) for (let i = 0; i < this.data.count; i++) if (wanted[this.data.name[i]] && inside(i)) this.found.push(i);
      this.found.sort((a, b) => this.data.start_ns[a] - this.data.start_ns[b]);
      this.nth = -1;
      this.draw();
    }

    next() {
      if (!this.found?.length) return;
      this.nth = (this.nth + 1) % this.found.length;
      const box = this.found[this.nth];
      this.choose(box);
      const middle = this.data.start_ns[box] + this.data.dur_ns[box] / 2;
      const span = Math.min(this.span, Math.max(this.data.dur_ns[box], 1) * 20); // wide enough to read its name
      this.look(middle - span / 2, span);
    }

    draw() {
      const { canvas } = this, ratio = window.devicePixelRatio || 1;
      const width = canvas.clientWidth;
      if (!width) return;
      canvas.width = width * ratio;
      canvas.height = this.height * ratio;
      const pen = canvas.getContext("2d");
      pen.scale(ratio, ratio);
      pen.font = "12px system-ui, sans-serif";
      pen.textBaseline = "middle";
      this.ruler(pen, width);
      this.drawn = 0;
      for (const lane of this.lanes) this.lane(pen, lane, width);
      pen.fillStyle = paper("--soft");
      for (const { y, text } of this.titles) pen.fillText(text, 4, y + TITLE / 2);
      if (this.chosen >= 0) this.links(pen, this.chosen);
      if (this.hovered >= 0 && this.hovered !== this.chosen) this.links(pen, this.hovered);
      const matches = this.matches ? `, ${this.found.length} found (Enter: the next)` : "";
      this.status.textContent = `${duration(this.span)} shown, ${this.drawn.toLocaleString("en")} boxes drawn${matches}`;
    }

    ruler(pen, width) {
      const raw = this.span / Math.max(width / 110, 1), power = 10 ** Math.floor(Math.log10(raw));
      const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
      pen.fillStyle = paper("--soft");
      pen.strokeStyle = paper("--line");
      for (let time = Math.ceil(this.from / step) * step; time < this.from + this.span; time += step) {
        const x = Math.round(this.x(time)) + 0.5;
        pen.beginPath();
        pen.moveTo(x, RULER - 4);
        pen.lineTo(x, this.height);
        pen.stroke();
        pen.fillText(time === 0 ? "0" : duration(time), x + 3, RULER / 2);
      }
    }

    // Boxes that would share a pixel are drawn as one, which stands for the longest of them.
    lane(pen, lane, width) {
      const data = this.data, palette = palettes[dark.matches ? "dark" : "light"], end = this.from + this.span;
      let left = -1, longest = -1;
      const flush = () => {
        if (longest < 0) return;
        this.box(pen, lane, longest, left, 1, palette);
        longest = -1;
      };
      for (let i = firstEndingAfter(data, lane, this.from); i < lane.end && data.start_ns[i] < end; i++) {
        const x = this.x(data.start_ns[i]), wide = data.dur_ns[i] / this.scale, pixel = Math.max(Math.floor(x), 0);
        if (wide >= 1) {
          flush();
          const begin = Math.max(x, -1);
          this.box(pen, lane, i, begin, Math.min(x + wide, width + 1) - begin, palette);
          continue;
        }
        if (pixel !== left) flush();
        left = pixel;
        if (longest < 0 || data.dur_ns[i] > data.dur_ns[longest]) longest = i;
      }
      flush();
    }

    box(pen, lane, i, x, wide, palette) {
      const data = this.data, name = data.name[i];
      pen.globalAlpha = this.matches && !this.matches[name] ? 0.25 : 1;
      pen.fillStyle = i === this.chosen ? paper("--accent") : palette[data.kind[i] % palette.length];
      pen.fillRect(x, lane.y, Math.max(wide - (wide > NARROW ? 1 : 0), 1), BAR - 1);
      this.drawn++;
      if (wide > 30) {
        pen.fillStyle = i === this.chosen ? paper("--card") : paper("--ink");
        pen.save();
        pen.beginPath();
        pen.rect(x, lane.y, wide - 3, BAR);
        pen.clip();
        pen.fillText(data.names[name].slice(0, Math.ceil(wide / 4)), Math.max(x, 0) + 3, lane.y + BAR / 2);
        pen.restore();
      }
      pen.globalAlpha = 1;
    }

    links(pen, box) {
      const laneOf = (i) => this.lanes.find((lane) => i >= lane.begin && i < lane.end);
      const pairs = this.launches(box).slice(0, 200).map((work) => [box, work]);
      if (this.data.cause[box] >= 0) pairs.push([this.data.cause[box], box]);
      pen.strokeStyle = paper("--accent");
      pen.lineWidth = 1.5;
      for (const [from, to] of pairs) {
        const [x1, x2] = [this.x(this.data.start_ns[from]), this.x(this.data.start_ns[to])];
        const [y1, y2] = [laneOf(from).y + BAR / 2, laneOf(to).y + BAR / 2];
        pen.beginPath();
        pen.moveTo(x1, y1);
        pen.bezierCurveTo(x1 + 30, y1, x2 - 30, y2, x2, y2);
        pen.stroke();
      }
    }

    // What is in the page, as the Chrome JSON that Perfetto and perfkit read.
    save() {
      const data = this.data, events = [];
      data.rows.forEach(([group, name], row) => {
        events.push({ ph: "M", name: "process_name", pid: group, args: { name: group } });
        events.push({ ph: "M", name: "thread_name", pid: group, tid: row, args: { name } });
      });
      const pids = new Map();
      const pid = (group) => pids.get(group) ?? pids.set(group, pids.size + 1).get(group);
      for (const event of events) event.pid = pid(event.pid);
      for (let i = 0; i < data.count; i++) {
        events.push({
          ph: "X", name: data.names[data.name[i]], cat: data.kinds[data.kind[i]], ts: data.start_ns[i] / 1e3,
          dur: data.dur_ns[i] / 1e3, pid: pid(data.rows[data.row[i]][0]), tid: data.row[i],
        });
      }
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([JSON.stringify({ traceEvents: events })], { type: "application/json" }));
      link.download = "timeline.json";
      link.click();
      URL.revokeObjectURL(link.href);
    }
  }

  for (const place of document.querySelectorAll(".timeline")) {
    const data = JSON.parse(document.getElementById(`${place.id}-data`).textContent);
    decoded(data).then(
      (ready) => { place.timeline = new Timeline(place, ready); place.dataset.ready = "1"; },
      (error) => { place.querySelector(".status").textContent = `The timeline cannot be drawn: ${error}`; },
    );
  }
})();
