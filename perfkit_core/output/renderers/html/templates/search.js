// The search of the page: sections, and every thing that a table names. The key / opens it.
"use strict";
page.search = (() => {
  const MOST = 60, MOST_OF_A_KIND = 12;
  const { things, made, say } = page;
  const dialog = document.querySelector("dialog.search"), input = dialog.querySelector("input"), list = dialog.querySelector("ul");
  let chosen = 0;

  const sections = () => [...document.querySelectorAll("main section[id]")].map((section) => ({
    kind: say("Section"), text: section.querySelector("h2, h3").textContent, href: `#${section.id}`,
  }));

  const entries = page.once(async () => {
    const data = await things.ready();
    const named = Object.entries(data.kinds).flatMap(([kind, { title, names }]) => names.map((name) => ({
      kind: title, text: things.label(data, kind, name), href: kind === "step" && things.timeline ? things.inTimeline(kind, name) : things.address(data, kind, name),
      step: kind === "step",
    })));
    for (const one of named) if (one.step) one.text = `${say("step")} ${one.text}`;
    return [...sections(), ...named].map((one) => ({ ...one, low: one.text.toLowerCase() }));
  });

  // A lower number is a better match: the whole text, its beginning, the beginning of a word, any place.
  const rank = ({ low }, words) => {
    if (!words.every((word) => low.includes(word))) return -1;
    const all = words.join(" ");
    if (low === all) return 0;
    if (low.startsWith(all)) return 1;
    return words.every((word) => new RegExp(`(^|[^a-z0-9])${word.replace(/[^a-z0-9]/g, "\\$&")}`).test(low)) ? 2 : 3;
  };

  const found = async (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), counts = new Map();
    const ranked = (await entries()).map((one, at) => ({ ...one, at, rank: rank(one, words) })).filter((one) => one.rank >= 0);
    ranked.sort((a, b) => a.rank - b.rank || a.at - b.at);
    return ranked.filter(({ kind }) => {
      counts.set(kind, (counts.get(kind) ?? 0) + 1);
      return counts.get(kind) <= MOST_OF_A_KIND;
    }).slice(0, MOST);
  };

  const choose = (at) => {
    const items = [...list.querySelectorAll("[role=option]")];
    chosen = Math.max(0, Math.min(at, items.length - 1));
    items.forEach((item, number) => item.setAttribute("aria-selected", number === chosen));
    input.setAttribute("aria-activedescendant", items[chosen]?.id ?? "");
    items[chosen]?.scrollIntoView({ block: "nearest" });
  };

  const update = async () => {
    const text = input.value, results = await found(text);
    if (text !== input.value) return; // a later letter has its own results
    list.replaceChildren(...results.map(({ kind, text: said, href }, at) => {
      const item = made("li", { id: `found-${at}` }, made("a", { href, tabIndex: -1 }, made("bdi", { textContent: said, title: said }), made("span", { textContent: kind })));
      item.setAttribute("role", "option");
      return item;
    }));
    if (!results.length) list.append(made("li", { className: "empty", textContent: say("Nothing on this page has this name.") }));
    choose(0);
  };

  const open = () => {
    if (dialog.open) return;
    dialog.showModal();
    input.select();
    update();
  };

  const keys = {
    Escape: () => dialog.close(), // also while there is a text, which browsers would clear first
    ArrowDown: () => choose(chosen + 1),
    ArrowUp: () => choose(chosen - 1),
    Enter: () => list.querySelector("[aria-selected=true] a")?.click(),
  };
  input.addEventListener("input", update);
  input.addEventListener("keydown", (event) => {
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  list.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); }); // beside the box
  document.querySelector(".sidebar .find")?.addEventListener("click", open);
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
    event.preventDefault();
    open();
  });
  return { open };
})();
