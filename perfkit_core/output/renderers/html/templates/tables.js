// Adds search, sorting, pages, filters, copying and saving to tables that are about to become visible. Without this
// script, the tables are complete except for the compressed rows of long tables.
"use strict";
(() => {
  const PAGES = [10, 25, 100, 1000];

  // Returns the full text of a cell, even if the cell shows a shortened text.
  const text = (cell) => (cell.querySelector(".full") ?? cell).textContent.trim();

  const complete = async (table) => {
    const rest = document.getElementById(table.dataset.rest);
    if (!rest) return;
    table.tBodies[0].insertAdjacentHTML("beforeend", page.text(await page.unpacked(rest.textContent)));
    rest.remove();
  };

  const filters = (table) => [...table.tHead.rows[0].cells].flatMap((cell, index) => (cell.dataset.filter ? [index] : []));

  const select = (api, index) => {
    const column = api.column(index), box = document.createElement("select");
    const values = [...new Set(column.nodes().toArray().map(text))].sort();
    const heading = column.header().textContent;
    box.setAttribute("aria-label", page.say("show only rows with this {heading}", { heading }));
    box.append(new Option(page.say("{heading}: all", { heading }), ""), ...values.map((value) => new Option(value, value)));
    box.addEventListener("change", () => {
      const { value } = box;
      column.search(value === "" ? "" : (_, __, row) => text(api.cell(row, index).node()) === value).draw();
    });
    return box;
  };

  const buttons = (title) => {
    // Numbers are saved without separators of thousands, which other programs would read as separators of cells.
    const saved = (cell) => (cell.classList.contains("num") ? text(cell).replaceAll(",", "") : text(cell));
    const exportOptions = { format: { body: (_, __, ___, cell) => saved(cell) } };
    // A spreadsheet would run such a text as a formula. The apostrophe prevents this.
    const harmless = (value) => value.replace(/^[=+\-@\t\r\n＝＋－＠]/, "'$&");
    const inFile = (cell) => (cell.classList.contains("num") ? saved(cell) : harmless(saved(cell)));
    const fileOptions = { format: { body: (_, __, ___, cell) => inFile(cell) } };
    return [
      { extend: "copyHtml5", title: null, text: page.say("Copy"), exportOptions },
      { extend: "csvHtml5", title, filename: title, exportOptions: fileOptions },
      { extend: "colvis", text: page.say("Columns") },
    ];
  };

  const language = () => ({
    search: page.say("Find"), lengthMenu: page.say("_MENU_ rows per page"), info: page.say("_START_ to _END_ of _TOTAL_ rows"),
    infoEmpty: page.say("no rows"), infoFiltered: page.say("(of _MAX_)"), zeroRecords: page.say("No matching rows."),
    thousands: ",",
    aria: {
      orderable: page.say(": sort"), orderableReverse: page.say(": sort in reverse"), orderableRemove: page.say(": remove sorting"),
      paginate: { first: page.say("first page"), previous: page.say("previous page"), next: page.say("next page"), last: page.say("last page") },
    },
    buttons: { copyTitle: page.say("Copied"), copySuccess: { 1: page.say("1 row"), _: page.say("%d rows") } },
  });

  const enhanced = new Map();
  const enhance = (table) => {
    if (!enhanced.has(table)) enhanced.set(table, enhancing(table));
    return enhanced.get(table);
  };

  const enhancing = async (table) => {
    const [DataTable] = await Promise.all([page.tables(), complete(table)]);
    const section = table.closest("section"), first = Number(table.dataset.first) || 25;
    for (const one of section.querySelectorAll(":scope > input.all, :scope > label.toggle")) one.remove();
    const many = table.tBodies[0].rows.length > first;
    const api = new DataTable(table, {
      paging: many,
      order: [], ordering: table.dataset.tree !== "1", autoWidth: false, search: { smart: false }, pageLength: first,
      lengthMenu: [...new Set([first, ...PAGES])].sort((a, b) => a - b), language: language(),
      layout: {
        topStart: { search: { placeholder: page.say("part of a name") } },
        topEnd: { buttons: buttons(section.querySelector("h2, h3").textContent) },
        bottomStart: "info", bottomEnd: many ? ["pageLength", "paging"] : null,
      },
    });
    const chosen = filters(table).map((index) => select(api, index));
    table.closest(".dt-container").querySelector(".dt-search").append(...chosen);
    api.on("draw", () => linked(table));
    linked(table);
    table.dataset.ready = "1";
    return api;
  };

  // Returns the positions of the columns that name things, with the kind of thing.
  const naming = (table) => [...table.tHead.rows[0].cells].flatMap((cell, index) => (cell.dataset.thing ? [[index, cell.dataset.thing]] : []));
  const named = (cell) => text(cell).replace(/^(· ?)+/, "");

  // Turns the names of things in the rows of a table into links.
  const linked = async (table) => {
    const columns = naming(table);
    if (!columns.length) return;
    const data = await page.things.ready();
    for (const row of table.tBodies[0].rows) {
      for (const [index, kind] of columns) {
        const cell = row.cells[index];
        if (!cell || cell.querySelector("a") || !page.things.known(data, kind, named(cell))) continue;
        const link = page.made("a", { href: page.things.address(data, kind, named(cell)), title: named(cell) }, ...cell.childNodes);
        cell.classList.replace("long", "name"); // the card shows the full name
        cell.removeAttribute("tabindex");
        cell.removeAttribute("title");
        cell.append(link);
      }
    }
  };

  // Shows and marks the row of a thing in the table of a section.
  page.reveal = async (section, kind, name) => {
    const table = section.querySelector("table"), index = table && naming(table).find(([, of]) => of === kind)?.[0];
    if (index === undefined) return;
    const api = table.dataset.first ? await enhance(table) : null;
    const rows = api ? api.rows().nodes().toArray() : [...table.tBodies[0].rows];
    const row = rows.find((one, at) => named(api ? api.cell(at, index).node() : one.cells[index]) === name);
    if (!row) return;
    const place = () => api.rows({ search: "applied" }).nodes().toArray().indexOf(row);
    if (api) {
      if (place() < 0) api.search("").columns().search("").draw();
      if (api.settings()[0].oFeatures.bPaginate) api.page(Math.floor(place() / api.page.len())).draw("page");
    }
    for (const box of section.querySelectorAll(":scope > input.all")) box.checked = true;
    for (const one of document.querySelectorAll("tr.chosen")) one.classList.remove("chosen");
    row.classList.add("chosen");
    row.scrollIntoView({ block: page.narrow.matches ? "start" : "center" }); // in a narrow window, the card covers the lower half
  };

  // Marks a table that continues beyond the right edge of its box, which then has a shadow.
  const edges = (box) => {
    const inner = () => [box, ...box.querySelectorAll(".dt-layout-full")];
    const update = () => box.classList.toggle("wider", inner().some((one) => one.scrollLeft + one.clientWidth < one.scrollWidth - 1));
    box.addEventListener("scroll", update, { capture: true, passive: true });
    new ResizeObserver(update).observe(box.querySelector("table"));
    new ResizeObserver(update).observe(box);
  };

  const theme = () => document.documentElement.classList.toggle("dark", page.dark.matches);
  theme();
  page.dark.addEventListener("change", theme);
  page.whenSeen(document.querySelectorAll("table[data-first]"), enhance);
  page.whenSeen(document.querySelectorAll("main section table:not([data-first])"), linked);
  page.whenSeen(document.querySelectorAll(".scroll"), edges);
})();
