// The address says what is shown (a link to a cell or a selection can be sent), and the keys.
let reading = false;

function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  reading = true;
  for (const one of DIMENSIONS) {
    const values = asked.getAll(one.name).filter(Boolean);
    chosen.set(one.name, new Set(values));
  }
  query = asked.get("q") || "";
  applyFilters();
  syncFilters();
  const index = places.get(asked.get("cell"));
  if (index !== undefined) openCell(index);
  else if (!panel.hidden) closePanel();
  reading = false;
}

function writeAddress() {
  if (reading) return;
  const said = new URLSearchParams();
  for (const one of DIMENSIONS) for (const value of chosen.get(one.name)) said.append(one.name, value);
  if (query.trim()) said.set("q", query.trim());
  if (!panel.hidden && opened >= 0) said.set("cell", cells[opened].id);
  const text = said.toString();
  history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}

function buildTheme() {
  const root = document.documentElement, dark = window.matchMedia("(prefers-color-scheme: dark)");
  $("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    drawTimeline();
  });
  dark.addEventListener("change", drawTimeline);
}

function onKey(event) {
  const typing = event.target.closest && event.target.closest("input, textarea, select");
  if (event.key === "Escape") {
    if (closeMenus() || closePanel()) event.preventDefault();
    else if (typing && event.target.value) { clearFilters(); }
  } else if (event.target.id === "text" && (event.key === "ArrowDown" || event.key === "Enter")) {
    event.preventDefault();
    focusFirstMatch();
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    if (event.key === "/") { event.preventDefault(); $("text").focus(); }
    else if (event.key === "n") step(1);
    else if (event.key === "p") step(-1);
  }
}

buildTop();
buildShare();
buildFilters();
buildGrid();
buildLists();
buildFailures();
buildCompiled();
buildComparison();
buildTimeline();
buildTheme();
document.addEventListener("keydown", onKey);
window.addEventListener("hashchange", readAddress);
window.addEventListener("beforeprint", () => onPrint(true));
window.addEventListener("afterprint", () => onPrint(false));
readAddress();
document.documentElement.dataset.ready = "yes";
