// The grid. Only the rows in view exist as elements, however many models there are.
const ROW = 52, OVERSCAN = 6;
const grid = $("grid");
const head = el("div", { class: "ghead", role: "row", "aria-rowindex": "1" });
const body = el("div", { class: "gbody", role: "rowgroup" });
const drawn = new Map();
let active = { row: 0, column: 0 };
let opened = -1;

function buildGrid() {
  grid.append(el("div", { role: "rowgroup" }, head), body);
  grid.addEventListener("scroll", () => requestAnimationFrame(drawRows), { passive: true });
  new ResizeObserver(() => drawRows()).observe(grid);
  grid.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-r]");
    if (!cell) return;
    active = { row: Number(cell.dataset.r), column: Number(cell.dataset.c) };
    focusActive();
    if (cell.dataset.i) openCell(Number(cell.dataset.i));
  });
  grid.addEventListener("keydown", onGridKey);
  grid.addEventListener("focusin", (event) => {
    const cell = event.target.closest("[data-r]");
    if (cell) active = { row: Number(cell.dataset.r), column: Number(cell.dataset.c) };
  });
  listeners.push(() => {
    active.row = Math.max(0, Math.min(active.row, shownRows.length - 1));
    active.column = Math.max(0, Math.min(active.column, shownColumns.length - 1));
    drawHead();
    clearRows();
    drawRows();
  });
}

const LONGEST_NAME = 28, NAME = "min(230px, 38vw)";
const cellWidth = () => (window.innerWidth < 640 ? 96 : 118);

let printing = false;

function template() {
  if (printing) return `minmax(90px, 1.8fr) repeat(${shownColumns.length}, minmax(0, 1fr))`;
  return `minmax(${NAME}, 1.6fr) repeat(${shownColumns.length}, minmax(${cellWidth()}px, 1fr))`;
}

function drawHead() {
  // Head and body are grids of their own: one width for both keeps their columns in line.
  head.style.minWidth = body.style.minWidth = printing ? "0" : `calc(${NAME} + ${cellWidth() * shownColumns.length}px)`;
  head.style.gridTemplateColumns = template();
  head.replaceChildren(el("div", { role: "columnheader" }, "model"), ...shownColumns.map((index) => {
    const column = columns[index], by = [column.ep, column.device].filter(Boolean).join(" on ");
    const rate = rateOf(undefined, index);
    return el("div", { role: "columnheader", title: [by, rate && `${rate.passed} of ${rate.ended} passed`].filter(Boolean).join(", ") },
      column.label, rate && el("small", {}, rateText(rate)));
  }));
  grid.setAttribute("aria-rowcount", shownRows.length + 1);
  grid.setAttribute("aria-colcount", shownColumns.length + 1);
  body.style.height = printing ? "auto" : `${Math.max(shownRows.length * ROW, 1)}px`;
  const none = grid.querySelector(".nothing");
  if (none) none.remove();
  if (!shownRows.length) grid.append(el("div", { class: "nothing" }, cells.length ? "no cell matches" : "this sweep has no cells"));
}

function clearRows() {
  drawn.forEach((row) => row.remove());
  drawn.clear();
}

function drawRows() {
  const first = printing ? 0 : Math.max(0, Math.floor(grid.scrollTop / ROW) - OVERSCAN);
  const last = printing ? shownRows.length : Math.min(shownRows.length, Math.ceil((grid.scrollTop + grid.clientHeight) / ROW) + OVERSCAN);
  for (const [place, row] of drawn) {
    if (place < first || place >= last) { row.remove(); drawn.delete(place); }
  }
  for (let place = first; place < last; place += 1) {
    if (!drawn.has(place)) {
      const row = drawRow(place);
      drawn.set(place, row);
      body.append(row);
    }
  }
  settleTab(first, last);
}

function drawRow(place) {
  const model = rows[shownRows[place]];
  // What tells long names apart stands at their end.
  const cut = model.id.length > LONGEST_NAME ? model.id.lastIndexOf("/") : -1;
  const about = [model.task, model.priority, model.id.slice(0, Math.max(cut, 0)), model.group].filter(Boolean).join(" · ");
  const row = el("div", { class: "grow", role: "row", "aria-rowindex": place + 2 },
    el("div", { class: "gname", role: "rowheader", title: model.name },
      el("span", {}, model.id.slice(cut + 1)), about && el("small", {}, about)));
  row.style.gridTemplateColumns = template();
  row.style.transform = printing ? "" : `translateY(${place * ROW}px)`;
  shownColumns.forEach((column, slot) => row.append(drawCell(place, column, slot)));
  return row;
}

// On what a cell was verified, as short as the grid needs it.
const WHERE = {
  "its own device": "own device", "its own provider, emulated": "emulated",
  "ONNX Runtime CPU in place of its own provider": "CPU in its place",
};

function drawCell(place, column, slot) {
  const index = at[shownRows[place] * columns.length + column];
  const facts = { role: "gridcell", tabindex: "-1", "data-r": place, "data-c": slot, "aria-colindex": slot + 2 };
  if (index < 0) {
    return el("div", { ...facts, class: "gcell none", "aria-label": `${columns[column].label}: not in this sweep` }, "");
  }
  const cell = cells[index], look = looks.get(cell.status);
  const proof = cell.failure ? undefined : cell.proof;
  const text = [cell.failure || (isExport(cell) ? "onnx" : cell.precision), proof && proof.figure].filter(Boolean).join(" ");
  const level = cell.level && `${cell.failure ? "up to " : ""}${cell.level}`;
  const told = level && [level, proof && `on ${proof.told}`, cell.run_on && `run on ${cell.run_on.name}`].filter(Boolean).join(", ");
  return el("div", {
    ...facts,
    "data-i": index,
    class: `gcell tone-${look.tone}${hits[index] ? "" : " miss"}${index === opened ? " open" : ""}`,
    title: `${cell.id}\n${words(cell.status)}${cell.message ? `: ${cell.message}` : ""}${told ? `\nverified ${told}` : ""}`,
    "aria-label": `${columns[column].label}: ${words(cell.status)} ${text}${told ? `, verified ${told}` : ""}`,
  }, el("i", { "aria-hidden": "true" }, look.glyph), el("span", {}, text, 
    level && el("small", { class: "level" }, [level, proof && proof.kind].filter(Boolean).join(" · ")),
    cell.run_on && el("small", {}, WHERE[cell.run_on.where])));
}

// On paper nothing scrolls: all rows are drawn, as wide as the page.
function onPrint(now) {
  printing = now;
  document.body.classList.toggle("printing", now);
  drawHead();
  clearRows();
  drawRows();
}

// From the search into the grid: the first match, or nothing if there is none.
function focusFirstMatch() {
  if (!matches.length) return;
  reveal(matches[0]);
  focusActive();
}

function settleTab(first, last) {
  const row = active.row >= first && active.row < last ? active.row : first;
  const before = body.querySelector('[tabindex="0"]');
  const now = body.querySelector(`[data-r="${row}"][data-c="${active.column}"]`);
  if (before && before !== now) before.setAttribute("tabindex", "-1");
  if (now) now.setAttribute("tabindex", "0");
}

function focusActive() {
  const top = active.row * ROW, room = grid.clientHeight - head.offsetHeight - ROW;
  if (top < grid.scrollTop) grid.scrollTop = top;
  else if (top > grid.scrollTop + room) grid.scrollTop = top - room;
  drawRows();
  const cell = body.querySelector(`[data-r="${active.row}"][data-c="${active.column}"]`);
  if (cell) cell.focus({ preventScroll: false });
}

function onGridKey(event) {
  if (event.altKey || !event.target.closest("[data-r]")) return;
  const page = Math.max(1, Math.floor(grid.clientHeight / ROW) - 2);
  const lastRow = shownRows.length - 1, lastColumn = shownColumns.length - 1;
  const whole = event.ctrlKey || event.metaKey;
  const moves = {
    ArrowUp: [active.row - 1, active.column], ArrowDown: [active.row + 1, active.column],
    ArrowLeft: [active.row, active.column - 1], ArrowRight: [active.row, active.column + 1],
    PageUp: [active.row - page, active.column], PageDown: [active.row + page, active.column],
    Home: [whole ? 0 : active.row, 0], End: [whole ? lastRow : active.row, lastColumn],
  };
  if (event.key === "Enter" || event.key === " ") {
    const index = event.target.dataset.i;
    event.preventDefault();
    if (index) openCell(Number(index));
  } else if (moves[event.key]) {
    event.preventDefault();
    const [row, column] = moves[event.key];
    active = { row: Math.max(0, Math.min(row, lastRow)), column: Math.max(0, Math.min(column, lastColumn)) };
    focusActive();
  }
}

function reveal(index) {
  const cell = cells[index];
  const row = shownRows.indexOf(cell.row), column = shownColumns.indexOf(cell.column);
  if (row < 0 || column < 0) return false;
  active = { row, column };
  const top = row * ROW;
  if (top < grid.scrollTop || top > grid.scrollTop + grid.clientHeight - 2 * ROW) {
    grid.scrollTop = Math.max(0, top - grid.clientHeight / 2);
  }
  drawRows();
  const drawnCell = body.querySelector(`[data-i="${index}"]`);
  if (drawnCell) {
    const left = drawnCell.offsetLeft, right = left + drawnCell.offsetWidth, name = drawnCell.parentNode.firstChild.offsetWidth;
    if (left < grid.scrollLeft + name) grid.scrollLeft = left - name;
    else if (right > grid.scrollLeft + grid.clientWidth) grid.scrollLeft = right - grid.clientWidth;
  }
  return true;
}

function markOpen(index) {
  opened = index;
  for (const cell of body.querySelectorAll(".gcell.open")) cell.classList.remove("open");
  const cell = index < 0 ? null : body.querySelector(`[data-i="${index}"]`);
  if (cell) cell.classList.add("open");
}
