// What belongs to a thing, as links: its place in the timeline, its kernels, layers and lines of code, and advice on it.
"use strict";
page.cards = (() => {
  const MOST = 6; // links of one kind that are shown at first
  const { things, made, say } = page;
  const card = document.querySelector("aside.card");

  const link = (href, text) => made("a", { href, title: text }, made("bdi", { textContent: text }));

  const list = (title, links) => {
    const items = links.map((one, at) => made("li", { hidden: at >= MOST }, one)), block = made("ul", {}, ...items);
    if (links.length > MOST) {
      const more = made("button", { type: "button", textContent: say("{count} more", { count: links.length - MOST }) });
      more.addEventListener("click", () => {
        items.forEach((item) => { item.hidden = false; });
        more.remove();
      });
      block.append(made("li", {}, more));
    }
    return made("div", { className: "leads" }, made("h4", { textContent: title }), block);
  };

  // Returns the lists of links from a thing. ``boxes`` is the number of its boxes in the timeline.
  const lists = (data, kind, name, boxes) => {
    const found = [];
    if (boxes) found.push(list(say("Timeline"), [link(things.inTimeline(kind, name), say("show its {count} boxes", { count: page.units.count(boxes) }))]));
    for (const [other, names] of things.related(data, kind, name)) {
      found.push(list(data.kinds[other].title, names.map((one) => link(things.address(data, other, one), things.label(data, other, one)))));
    }
    const places = things.places(data, kind, name);
    if (places.length) found.push(list(say("Also in"), places.map(([id, title]) => link(things.inTable(id, kind, name), title))));
    return found;
  };

  const filled = async (place, kind, name) => {
    const data = await things.ready(), timeline = await page.timeline?.();
    place.append(...lists(data, kind, name, timeline?.boxes(kind, name).length ?? 0));
    return place;
  };

  const close = () => {
    card.hidden = true;
    card.replaceChildren();
  };

  const open = async (kind, name) => {
    const data = await things.ready();
    const shut = link(`#${data.kinds[kind].home}`, "×");
    Object.assign(shut, { className: "close", title: say("Close (Esc)") });
    const inside = await filled(made("div"), kind, name);
    card.replaceChildren(shut, made("p", { className: "kind", textContent: data.kinds[kind].title }), made("h3", {}, made("bdi", { textContent: things.label(data, kind, name) })), inside);
    card.hidden = false;
  };

  // Sections on one thing, such as an item of advice, have its links at their end.
  const own = async (chapter) => {
    const data = await things.ready();
    for (const [kind, { home, names }] of Object.entries(data.kinds)) {
      for (const name of names) {
        const section = document.getElementById(`${home}-${name}`);
        if (!section || !chapter.contains(section) || section.querySelector(":scope > .of-thing")) continue;
        section.append(made("div", { className: "of-thing" }));
        filled(section.lastChild, kind, name);
      }
    }
  };

  return { open, close, own, isOpen: () => !card.hidden };
})();
