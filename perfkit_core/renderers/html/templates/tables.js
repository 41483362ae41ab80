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
    table.tBodies[0].insertAdjacentHTML("beforeend", new TextDecoder().decode(await page.unpacked(rest.textContent)));
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
    return [
      { extend: "copyHtml5", title: null, text: page.say("Copy"), exportOptions },
      { extend: "csvHtml5", title, filename: title, exportOptions },
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

  const enhance = async (table) => {
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
    table.dataset.ready = "1";
  };

  const theme = () => document.documentElement.classList.toggle("dark", page.dark.matches);
  theme();
  page.dark.addEventListener("change", theme);
  page.whenSeen(document.querySelectorAll("table[data-first]"), enhance);
})();
