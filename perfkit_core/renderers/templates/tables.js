// Tables that are about to be seen become tables to search, sort, page, filter, copy and save. Without this script, and
// on paper, they are the tables that they are.
"use strict";
(() => {
  const PAGES = [10, 25, 100, 1000];

  const filters = (table) => [...table.tHead.rows[0].cells].flatMap((cell, index) => (cell.dataset.filter ? [index] : []));

  const select = (api, index) => {
    const column = api.column(index), box = document.createElement("select");
    const values = [...new Set(column.nodes().toArray().map((cell) => cell.textContent))].sort();
    const heading = column.header().textContent;
    box.setAttribute("aria-label", `only rows with this ${heading}`);
    box.append(new Option(`${heading}: all`, ""), ...values.map((value) => new Option(value, value)));
    box.addEventListener("change", () => {
      const wanted = box.value;
      column.search(wanted === "" ? "" : (text) => text === wanted, { exact: true }).draw();
    });
    return box;
  };

  const enhance = async (table) => {
    const DataTable = await page.tables();
    const tree = table.dataset.tree === "1";
    table.closest("section").querySelector("input.all")?.remove();
    table.closest("section").querySelector("label.toggle")?.remove();
    const title = table.closest("section").querySelector("h2").textContent;
    const first = Number(table.dataset.first) || 25;
    const buttons = [
      { extend: "copyHtml5", title: null }, { extend: "csvHtml5", title, filename: title },
      { extend: "colvis", text: "Columns" },
    ];
    const api = new DataTable(table, {
      order: [], ordering: !tree, autoWidth: false, search: { smart: false }, pageLength: first,
      lengthMenu: [...new Set([first, ...PAGES])].sort((a, b) => a - b),
      layout: { topStart: { search: { placeholder: "part of a name" } }, topEnd: { buttons }, bottomStart: "info", bottomEnd: ["pageLength", "paging"] },
      language: { search: "Find", lengthMenu: "_MENU_ rows a page" },
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
