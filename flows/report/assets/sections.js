// Everything beside the grid: totals, failures, the longest lists, the comparison.
function buildTop() {
  const { heading, totals } = doc;
  $("title").textContent = `Sweep ${heading.stamp}`;
  const took = `${duration(heading.seconds)}${heading.runs > 1 ? ` in ${heading.runs} runs` : ""}`;
  const end = heading.ended_at ? `, ended ${moment(heading.ended_at)} (${took})` : "";
  $("subtitle").textContent = `${heading.feed} · begun ${moment(heading.created_at)}${end}`;
  const badge = $("verdict"), code = heading.exit_code;
  badge.textContent = code === undefined ? heading.verdict : `exit ${code}: ${heading.verdict}`;
  badge.classList.add(`tone-${code === 0 ? "good" : code === undefined ? "busy" : code === 1 ? "bad" : "warn"}`);
  const count = (name) => (totals.counts || {})[name] || 0;
  const percent = totals.stage_runs ? Math.round((100 * totals.stages_reused) / totals.stage_runs) : 0;
  const tiles = [
    [totals.cells, `${totals.cells === 1 ? "cell" : "cells"} of ${counted(totals.models, "model")}`],
    [count("published") + count("unchanged") + count("verified"), "good"],
    [totals.failed, totals.failed_exports ? `failed, and ${counted(totals.failed_exports, "export")}` : "failed",
      totals.failed + totals.failed_exports > 0],
    [totals.open, "open"],
    [duration(totals.seconds_run), "spent in stages"],
    [duration(totals.seconds_saved), `saved: ${percent}% of ${totals.stage_runs} stages reused`],
    [size(totals.bytes), "published"],
    [size(totals.bytes_saved), "not made twice"],
  ];
  $("tiles").append(...tiles.map(([value, text, alarm]) =>
    el("div", { class: alarm ? "tile alarm" : "tile" }, el("b", {}, String(value)), el("span", {}, text))));
  const all = rateOf() || {};
  for (const told of [countsText(all.where), countsText(all.samples)]) {
    if (told) $("subtitle").append(el("div", {}, `verified on ${told}`));
  }
  $("foot").textContent = `modelmill ${heading.version}, made ${moment(heading.generated_at)} from the state ${heading.state}`;
  const shown = (value) => (Array.isArray(value) ? value.join(", ") : String(value));
  $("settings").append(facts(Object.entries(heading.settings || {}).map(([name, value]) => [name, shown(value)])) || "none");
}

function buildShare() {
  for (const look of doc.statuses) {
    const number = ((doc.totals.counts || {})[look.name]) || 0;
    if (!number) continue;
    const button = el("button", { type: "button", class: `tone-${look.tone}`, title: look.meaning, "aria-pressed": "false",
      on: { click: () => toggle("status", look.name) } }, `${look.glyph} `, el("b", {}, String(number)), ` ${words(look.name)}`);
    button.style.flexGrow = number;
    $("share").append(button);
    listeners.push(() => button.setAttribute("aria-pressed", String(chosen.get("status").has(look.name))));
  }
}

function cellLink(id, text) {
  const index = places.get(id);
  if (index === undefined) return el("span", {}, text || id);
  return el("button", { type: "button", class: "link", on: { click: () => openCell(index) } }, text || id);
}

function buildLists() {
  const ranked = (list, show) => el("div", {}, ...(list || []).map((one) => {
    const bar = el("div", {});
    bar.style.width = `${Math.max(1, (100 * one.value) / list[0].value)}%`;
    return el("div", { class: "rank" }, cellLink(one.cell, one.name), el("span", { class: "num" }, show(one.value)),
      el("div", { class: "track" }, bar));
  }));
  const empty = (text) => el("p", { class: "dim" }, text);
  $("slowest").append(doc.slowest ? ranked(doc.slowest, duration) : empty("No stage ran."));
  $("largest").append(doc.largest ? ranked(doc.largest, size) : empty("No package was made."));
}

const MOST_CAUSES = 8;

function buildFailures() {
  const { totals } = doc, causes = doc.failures || [];
  const box = $("causes");
  if (!causes.length) {
    $("failed").textContent = totals.open ? "none so far" : "none";
  } else {
    const parts = [totals.failed && counted(totals.failed, "cell"), totals.failed_exports && counted(totals.failed_exports, "export")];
    $("failed").textContent = `${parts.filter(Boolean).join(" and ")}, ${counted(causes.length, "cause")}`;
    const lines = causes.map(causeRow);
    lines.slice(MOST_CAUSES).forEach((line) => { line.hidden = true; });
    box.append(table(["class", "cells", "what", "next step"], lines, [1]));
    if (lines.length > MOST_CAUSES) {
      const more = el("button", { type: "button", class: "quiet", on: { click: () => {
        lines.forEach((line) => { line.hidden = false; });
        more.remove();
      } } }, `${lines.length - MOST_CAUSES} more`);
      box.append(more);
    }
  }
  buildRates();
}

function causeRow(cause, place) {
  const own = cause.cells || [], exports = cause.exports || [];
  const amount = own.length ? counted(own.length, "cell") : counted(exports.length, "export");
  const value = String(place);
  const button = el("button", { type: "button", class: "link", title: "show these cells", "aria-pressed": "false",
    on: { click: () => toggle("cause", value) } }, amount);
  listeners.push(() => button.setAttribute("aria-pressed", String(chosen.get("cause").has(value))));
  const all = [...own, ...exports];
  const named = [...new Set(all.map((index) => rows[cells[index].row].name))];
  const who = own.length === 1 || all.length === 1 ? cellLink(cells[all[0]].id)
    : `${counted(cause.models, "model")}: ${named.slice(0, 4).join(", ")}${named.length > 4 ? ` and ${named.length - 4} more` : ""}`;
  const meaning = (doc.causes[cause.failure] || {}).meaning;
  return el("tr", {}, el("td", {}, el("span", { class: `pill tone-${toneOf(cells[all[0]].status)}`, title: meaning }, cause.failure)),
    el("td", { class: "num" }, button),
    el("td", {}, el("div", {}, cause.text), el("div", { class: "dim" }, who)),
    el("td", {}, cause.hint));
}

// Targets across, priorities down: how many of the cells that ended passed, and how far verification went.
function buildRates() {
  const priorities = [...new Set((doc.rates || []).map((one) => one.priority).filter(Boolean))].sort();
  if (!rateOf()) return;
  const targets = columns.map((_column, index) => index).filter((index) => columns[index].label.split(":")[0] !== "export");
  const line = (priority) => el("tr", {}, el("th", { scope: "row" }, priority || "all"),
    ...[undefined, ...targets].map((column) => el("td", {}, ...rateParts(rateOf(priority, column)))));
  $("rates").append(el("table", {},
    el("caption", {}, "Passed, of the cells that ended, and the level of verification that all of these reached; below, on what those that passed were verified"),
    el("thead", {}, el("tr", {}, ...["priority", "all targets", ...targets.map((index) => columns[index].label)]
      .map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...priorities.map(line), line()),
    evidenceRows("where", targets), evidenceRows("samples", targets)));
}

// How many of the cells that passed were verified on what, by target.
function evidenceRows(name, targets) {
  const kinds = Object.keys((rateOf() || {})[name] || {});
  return el("tbody", {}, ...kinds.map((kind) => el("tr", {}, el("th", { scope: "row" }, kind),
    ...[undefined, ...targets].map((column) => el("td", {}, String(((rateOf(undefined, column) || {})[name] || {})[kind] || "–"))))));
}

function countsText(counts) {
  return Object.entries(counts || {}).sort((a, b) => b[1] - a[1]).slice(0, 6)
    .map(([kind, number]) => `${kind}: ${counted(number, "cell")}`).join("; ");
}

function rateParts(rate) {
  if (!rate) return [el("span", { class: "dim" }, "–")];
  const bad = rate.passed < rate.ended;
  return [el("span", { class: bad ? "short" : "" }, rateText(rate)), rate.level && el("small", {}, ` ${rate.level}`)].filter(Boolean);
}

// Each compiled cell beside the portable one that it was made from.
function buildCompiled() {
  const found = cells.filter((cell) => columns[cell.column].label.includes("+") && !cell.id.split("@").pop().startsWith("export"));
  if (!found.length) return;
  const emulated = found.some((cell) => cell.opening && cell.opening.emulated);
  $("compiled").hidden = false;
  $("compiled").append(
    el("div", { class: "cardhead" }, el("h2", { id: "h-compiled" }, "Compiled for devices"),
      el("span", { class: "dim" }, counted(found.length, "cell"))),
    ...(emulated ? [el("p", { class: "next" }, "Times and memory marked emulated were measured on an emulator: they say nothing about the device.")] : []),
    table(["cell", "profile", "opens in", "portable", "", "memory", "portable", "package", "portable"],
      found.map(compiledRow), [2, 3, 4, 5, 6, 7, 8]));
}

function compiledRow(cell) {
  const opening = cell.opening || {}, models = opening.models || [];
  const sum = (side, name) => {
    const values = models.map((one) => (one[side] || {})[name]);
    return values.length && values.every((value) => value != null) ? values.reduce((a, b) => a + b, 0) : undefined;
  };
  const after = sum("compiled", "seconds"), before = sum("portable", "seconds");
  const index = places.get(cell.id.slice(0, cell.id.lastIndexOf("+")));
  const portable = index === undefined ? {} : cells[index];
  const shown = (value, write) => el("td", { class: "num" }, value === undefined ? "–" : write(value));
  const ratio = after && before ? `${(before / after).toPrecision(2)} times faster${opening.emulated ? " (emulated)" : ""}` : models.length ? "" : "not measured";
  return el("tr", {},
    el("td", {}, cellLink(cell.id), el("div", { class: "dim" }, words(cell.status))),
    el("td", { class: "mono" }, cell.id.slice(cell.id.lastIndexOf("+") + 1),
      opening.emulated ? el("div", { class: "short" }, "emulated") : ""),
    shown(after, duration), shown(before, duration), el("td", {}, after > before ? "not faster" : ratio),
    shown(sum("compiled", "memory"), size), shown(sum("portable", "memory"), size),
    shown(cell.tree && cell.bytes, size), shown(portable.tree && portable.bytes, size));
}

const VERDICT_TONES = { "now fails": "bad", "still fails": "warn", "verified less": "warn", "now works": "good", changed: "busy", new: "same", removed: "idle", unfinished: "idle", unchanged: "same" };
const MOST_CHANGES = 100;

function buildComparison() {
  const compared = doc.comparison, box = $("compared");
  if (!compared) return;
  box.hidden = false;
  const changes = compared.changes || [];
  let only = null, most = MOST_CHANGES;
  const list = el("div", { class: "changes", tabindex: "0", role: "region", "aria-label": "cells that differ" });
  const chips = el("div", { class: "chips", role: "group", "aria-label": "verdicts; press to filter" });
  const draw = () => {
    const wanted = changes.filter((one) => !only || one.verdict === only);
    list.replaceChildren(wanted.length ? table(["cell", "verdict", "why", "difference"], wanted.slice(0, most).map(changeRow))
      : el("p", { class: "dim" }, only === "unchanged" ? "Unchanged cells are only counted." : "Nothing differs."));
    if (wanted.length > most) {
      list.append(el("button", { type: "button", class: "quiet", on: { click: () => { most += MOST_CHANGES; draw(); } } },
        `${wanted.length - most} more`));
    }
    for (const chip of chips.children) chip.setAttribute("aria-pressed", String(chip.dataset.verdict === only));
  };
  for (const [verdict, number] of Object.entries(compared.counts || {})) {
    if (!number) continue;
    chips.append(el("button", { type: "button", class: `tone-${VERDICT_TONES[verdict] || "idle"}`, "data-verdict": verdict,
      title: compared.meanings[verdict],
      on: { click: () => { only = only === verdict ? null : verdict; most = MOST_CHANGES; draw(); } } },
    el("b", {}, String(number)), ` ${verdict}`));
  }
  box.append(el("div", { class: "cardhead" }, el("h2", { id: "h-compared" }, `Compared with ${compared.before}`)), chips, list);
  draw();
}

function changeRow(one) {
  const after = one.after || {}, before = one.before || {};
  const why = (one.inputs || []).map((cause) =>
    el("div", {}, el("b", {}, cause.origin === cause.name ? cause.name : `${cause.origin} ${cause.name}`), `: ${cause.before} → ${cause.after}`));
  if (after.failure) why.unshift(el("div", {}, `${after.failure}: ${(after.message || "").slice(0, 200)}`));
  if (one.note) why.push(el("div", { class: "dim" }, one.note));
  const statuses = [before.status, after.status].filter(Boolean).map(words);
  const facts_ = [...new Set(statuses)].join(" → ");
  return el("tr", {}, el("td", {}, cellLink(one.cell)),
    el("td", {}, el("span", { class: `pill tone-${VERDICT_TONES[one.verdict] || "idle"}` }, one.verdict)),
    el("td", {}, ...why), el("td", {}, el("div", {}, facts_), ...(one.deltas || []).map((line) => el("div", { class: "dim" }, line))));
}
