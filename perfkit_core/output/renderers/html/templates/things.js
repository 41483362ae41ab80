// The things that a page names: operators, kernels, layers, lines of code, steps and advice. Each has an address on the
// page, such as #operators/aten::mm, and #timeline/operator=aten::mm for its boxes in the timeline.
"use strict";
page.things = (() => {
  const ready = page.once(async () => {
    const data = JSON.parse(page.text(await page.unpacked(document.getElementById("links").textContent)));
    for (const kind of Object.values(data.kinds)) kind.number = new Map(kind.names.map((name, at) => [name, at]));
    return data;
  });

  const encoded = (text) => encodeURIComponent(text).replace(/%(2F|3A|2C|3D|20)/g, (code) => (code === "%20" ? "+" : decodeURIComponent(code)));
  const decoded = (text) => {
    try {
      return decodeURIComponent(text.replaceAll("+", "%20"));
    } catch {
      return text; // not made by this page
    }
  };

  const known = (data, kind, name) => data.kinds[kind]?.number.has(name);
  const label = (data, kind, name) => data.kinds[kind].labels?.[data.kinds[kind].number.get(name)] ?? name;

  const timeline = document.querySelector(".timeline");
  const inTimeline = (kind, name) => `#timeline/${kind}=${encoded(name)}`;
  const address = (data, kind, name) => `#${data.kinds[kind].home}/${encoded(name)}`;
  const inTable = (section, kind, name) => `#${section}/${kind}=${encoded(name)}`;

  // Returns [kind, names] for each kind of things that belong to a thing.
  const related = (data, kind, name) => {
    const own = data.kinds[kind].number.get(name);
    return Object.entries(data.kinds).flatMap(([other, { names }]) => {
      const found = new Set();
      for (const [pair, turned] of [[`${kind} ${other}`, 0], [`${other} ${kind}`, 1]]) {
        const indices = data.related[pair] ?? [];
        for (let at = 0; at < indices.length; at += 2) if (indices[at + turned] === own) found.add(names[indices[at + 1 - turned]]);
      }
      return found.size ? [[other, [...found]]] : [];
    });
  };

  // Returns the other tables that name a thing, as [section id, title].
  const places = (data, kind, name) => {
    const own = data.kinds[kind].number.get(name);
    return data.places.flatMap(([id, title, of, indices]) => (of === kind && id !== data.kinds[kind].home && indices.includes(own) ? [[id, title]] : []));
  };

  // Reads the part of an address after the slash: "step=5", or a name in the section or chapter ``place``.
  const read = (data, place, text) => {
    const [, kind, name] = /^(\w+)=(.*)$/s.exec(text) ?? [];
    if (kind in data.kinds) return known(data, kind, name) ? [kind, name] : null;
    const chapter = document.querySelector(`.chapter[data-chapter="${CSS.escape(place)}"]`);
    const homes = Object.entries(data.kinds).filter(([, { home }]) => home === place || chapter?.contains(document.getElementById(home)));
    const found = homes.find(([one]) => known(data, one, text));
    return found ? [found[0], text] : null;
  };

  return { ready, encoded, decoded, known, label, address, inTimeline, inTable, related, places, read, timeline };
})();
