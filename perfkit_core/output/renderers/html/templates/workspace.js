// Shows one chapter of the page, or all, as the address says: #operators, #operators/aten::mm, #timeline/step=5, #all.
"use strict";
(() => {
  const { things, cards } = page, root = document.documentElement, single = document.body.dataset.single === "1";
  const chapters = [...document.querySelectorAll(".chapter")], entries = [...document.querySelectorAll(".sidebar li[data-chapter]")];
  const start = chapters[0].dataset.chapter;

  const show = (key) => {
    const all = key === "all" || !single;
    for (const chapter of chapters) chapter.classList.toggle("open", all || chapter.dataset.chapter === key);
    for (const entry of entries) {
      const current = entry.dataset.chapter === key;
      entry.classList.toggle("current", current);
      if (current) entry.querySelector("a").setAttribute("aria-current", "true");
      else entry.querySelector("a").removeAttribute("aria-current");
      if (current) entry.parentElement.scrollTo?.({ left: entry.offsetLeft - 60 }); // in the bar of a narrow window
    }
    for (const chapter of chapters) if (chapter.classList.contains("open")) cards.own(chapter);
  };

  const unfolded = (element) => {
    for (let fold = element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    element.scrollIntoView();
  };

  // Opens the chapter or the section with a name. Returns its element, or null.
  const open = (place) => {
    const chapter = chapters.find((one) => one.dataset.chapter === place), element = document.getElementById(place);
    const within = chapter ?? element?.closest(".chapter");
    show(place === "all" ? "all" : within?.dataset.chapter ?? (single ? start : "all"));
    if (!chapter && within) unfolded(element);
    else if (!single && chapter) chapter.scrollIntoView();
    else scrollTo(0, 0);
    return within ?? null;
  };

  const follow = async (place, text) => {
    const data = await things.ready(), thing = things.read(data, place, text);
    if (!thing) return;
    const [kind, name] = thing, { home } = data.kinds[kind];
    if (place === "timeline") return (await page.timeline?.())?.mark(kind, name, things.label(data, kind, name));
    const own = document.getElementById(`${home}-${name}`);
    if (own) return unfolded(own);
    const element = document.getElementById(place);
    const section = element?.querySelector(`th[data-thing="${kind}"]`) && element.matches("section") ? element : document.getElementById(home);
    if (!section.checkVisibility()) show(section.closest(".chapter").dataset.chapter);
    await page.reveal(section, kind, name);
    await cards.open(kind, name);
  };

  const route = () => {
    const [place, ...rest] = location.hash.slice(1).split("/");
    cards.close();
    if (place === "" && rest.length === 0) return show(single ? start : "all");
    open(things.decoded(place));
    if (rest.length) follow(things.decoded(place), things.decoded(rest.join("/")));
    else if (place === "timeline") things.timeline?.timeline?.unmark();
  };

  addEventListener("hashchange", route);
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && cards.isOpen() && !document.querySelector("dialog[open]")) location.hash = location.hash.split("/")[0];
  });
  addEventListener("beforeprint", () => root.classList.add("printing"));
  addEventListener("afterprint", () => root.classList.remove("printing"));
  route();
})();
