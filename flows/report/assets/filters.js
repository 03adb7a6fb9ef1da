// Which cells match. A model is shown when one of its cells matches; its other cells fade.
const DIMENSIONS = [
  { name: "status", of: (cell) => cell.status, show: words },
  { name: "target", of: (cell) => columns[cell.column].label },
  { name: "task", of: (cell) => rows[cell.row].task },
  { name: "priority", of: (cell) => rows[cell.row].priority },
  { name: "class", of: (cell) => cell.failure, title: "failure class" },
  { name: "cause", of: (_cell, index) => causeOf.get(index), title: "cause",
    show: (place) => `${doc.failures[place].failure}: ${doc.failures[place].text}`.slice(0, 60) },
];
const chosen = new Map(DIMENSIONS.map((one) => [one.name, new Set()]));
let query = "";
const hits = new Uint8Array(cells.length);
let shownRows = [], shownColumns = [], matches = [];
const listeners = [];

const haystack = cells.map((cell) => [
  cell.id, cell.precision, cell.version, cell.package, rows[cell.row].type, rows[cell.row].group,
  cell.failure, (cell.message || "").replace(/\(the same run failed for .*\)/, ""), cell.tree,
].filter(Boolean).join(" ").toLowerCase());

function applyFilters() {
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  const active = DIMENSIONS.filter((one) => chosen.get(one.name).size);
  const rowHit = new Uint8Array(rows.length);
  matches = [];
  cells.forEach((cell, index) => {
    const hit = active.every((one) => chosen.get(one.name).has(one.of(cell, index) || "")) &&
      terms.every((term) => haystack[index].includes(term));
    hits[index] = hit ? 1 : 0;
    if (hit) { rowHit[cell.row] = 1; matches.push(index); }
  });
  shownRows = rows.map((_row, index) => index).filter((index) => rowHit[index]);
  const targets = chosen.get("target");
  shownColumns = columns.map((_column, index) => index)
    .filter((index) => !targets.size || targets.has(columns[index].label));
  listeners.forEach((listener) => listener());
}

const filtering = () => Boolean(query.trim()) || DIMENSIONS.some((one) => chosen.get(one.name).size);

function toggle(dimension, value) {
  const set = chosen.get(dimension);
  if (!set.delete(value)) set.add(value);
  changedFilters();
}

function changedFilters() {
  applyFilters();
  syncFilters();
  writeAddress();
}

function clearFilters() {
  chosen.forEach((set) => set.clear());
  query = "";
  changedFilters();
}

function buildFilters() {
  for (const one of DIMENSIONS) {
    const counts = new Map();
    for (const [index, cell] of cells.entries()) {
      const value = one.of(cell, index);
      if (value && (!isExport(cell) || one.name === "target")) counts.set(value, (counts.get(value) || 0) + 1);
    }
    if (counts.size < 1) continue;
    const order = one.name === "status" ? [...looks.keys()]
      : one.name === "target" ? columns.map((column) => column.label) : [...counts.keys()].sort();
    const box = el("div", { role: "group", "aria-label": one.title || one.name });
    for (const value of order.filter((name) => counts.has(name))) {
      const tick = el("input", { type: "checkbox", value, "data-filter": one.name,
        on: { change: () => toggle(one.name, value) } });
      const look = one.name === "status" ? looks.get(value) : null;
      box.append(el("label", {}, tick,
        look ? pill(value) : el("span", {}, one.show ? one.show(value) : value),
        el("span", {}, String(counts.get(value)))));
    }
    $("filters").append(el("details", { class: "filter", "data-name": one.name },
      el("summary", {}, one.title || one.name), box));
  }
  $("text").addEventListener("input", (event) => { query = event.target.value; changedFilters(); });
  $("clear").addEventListener("click", () => { clearFilters(); $("text").focus(); });
  document.addEventListener("click", (event) => closeMenus(event.target));
  listeners.push(() => {
    $("clear").hidden = !filtering();
    const found = matches.filter((index) => !isExport(cells[index])).length, exports = matches.length - found;
    $("shown").textContent = filtering()
      ? `${found} of ${doc.totals.cells} match${exports ? `, and ${counted(exports, "export")}` : ""}, in ${shownRows.length} of ${rows.length} models`
      : `${doc.totals.cells} in ${counted(rows.length, "model")}`;
  });
}

function closeMenus(except) {
  let closed = false;
  for (const menu of document.querySelectorAll("details.filter[open]")) {
    if (except && menu.contains(except)) continue;
    menu.open = false;
    closed = true;
  }
  return closed;
}

function syncFilters() {
  if ($("text").value !== query) $("text").value = query;
  for (const tick of document.querySelectorAll("[data-filter]")) {
    tick.checked = chosen.get(tick.dataset.filter).has(tick.value);
  }
  for (const menu of document.querySelectorAll("details.filter")) {
    const set = chosen.get(menu.dataset.name), one = DIMENSIONS.find((item) => item.name === menu.dataset.name);
    menu.classList.toggle("on", set.size > 0);
    menu.firstChild.textContent = (one.title || one.name) + (set.size ? ` · ${set.size}` : "");
  }
}
