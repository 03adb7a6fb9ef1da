const $ = (id) => document.getElementById(id);

function el(tag, facts, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(facts || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") made.className = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

function size(bytes) {
  if (bytes === undefined || bytes === null) return "";
  let value = bytes;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000) return unit === "B" ? `${value} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} TB`;
}

// A text that people take elsewhere. A page from disk may have no clipboard: then it is selected.
function copyable(text, shown) {
  const told = shown || el("span", { class: "mono" }, text);
  return el("span", { class: "copyable" }, told, " ", copyButton(text, told));
}

function copyButton(text, told) {
  const button = el("button", { type: "button", class: "copy", title: "copy", "aria-label": `copy ${text}`, on: { click: async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(told); button.textContent = document.execCommand("copy") ? "copied" : "selected"; }
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } } }, "copy");
  return button;
}

// A list that breaks between its items, and in a path only behind a slash.
function items(list) {
  const breakable = (text) => text.split(/(?<=[/])/).flatMap((part, place) => (place ? [el("wbr", {}), part] : [part]));
  return el("span", { class: "items" }, ...list.flatMap((one, place) => [el("span", {}, ...breakable(String(one)), place < list.length - 1 && ","), " "]));
}

// A table that a phone shows as a block for each row, whose cells begin with their heads.
function table(heads, rows) {
  for (const row of rows) [...row.cells].forEach((cell, place) => { cell.dataset.head = heads[place]; });
  const isNumber = (place) => rows[0]?.cells[place]?.classList.contains("num");
  return el("table", { class: "blocks" },
    el("thead", {}, el("tr", {}, ...heads.map((text, place) => el("th", { scope: "col", class: isNumber(place) && "num" }, text)))),
    el("tbody", {}, ...rows));
}
