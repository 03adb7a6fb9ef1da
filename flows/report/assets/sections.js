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
  $("tiles").append(...tiles().map(([value, text, more, alarm]) =>
    el("div", { class: alarm ? "tile alarm" : "tile" }, el("b", {}, String(value)), el("span", {}, text), el("small", {}, more))));
  const percent = totals.stage_runs ? Math.round((100 * totals.stages_reused) / totals.stage_runs) : 0;
  $("effort").textContent = [`${duration(totals.seconds_run)} spent in stages`,
    `${duration(totals.seconds_saved)} and ${size(totals.bytes_saved)} saved: ${percent}% of ${totals.stage_runs} stages reused`,
    `${size(totals.bytes)} published`].join(" · ");
  $("foot").textContent = `modelmill ${heading.version}, made ${moment(heading.generated_at)} from the state ${heading.state}`;
  const shown = (value) => (Array.isArray(value) ? value.join(", ") : String(value));
  $("settings").append(facts(Object.entries(heading.settings || {}).map(([name, value]) => [name, shown(value)])) || "none");
}

// What a release manager asks first: what can be shipped, what is new, what changed, on what it was verified.
function tiles() {
  const { totals } = doc, count = (name) => (totals.counts || {})[name] || 0, all = rateOf() || {};
  const good = count("published") + count("unchanged") + count("verified"), where = all.where || {};
  const failed = totals.failed + totals.failed_exports;
  const first = [`${good} / ${totals.cells}`, totals.cells === 1 ? "cell is good" : "cells are good",
    [`${totals.failed} failed`, `${totals.open} open`, counted(totals.models, "model")].join(", ")];
  const exports = totals.failed_exports ? `, and ${counted(totals.failed_exports, "export")}` : "";
  const own = where["its own device"] || 0;
  const judged = Object.values(where).reduce((a, b) => a + b, 0);
  const last = [`${own} / ${judged}`, "verified on their own device",
    Object.entries(where).filter(([name]) => name !== "its own device").map(([name, number]) => `${number} on ${name}`).join(", ") || countsText(all.samples)];
  const compared = doc.comparison;
  if (!compared) {
    return [first, [totals.failed, `failed${exports}`, "no earlier sweep of this catalog to compare with", failed > 0],
      [size(totals.bytes) || "0 B", "published", `${duration(totals.seconds_run)} spent in stages`], last];
  }
  const counts = compared.counts || {}, changes = compared.changes || [], of = (name) => counts[name] || 0;
  const slower = changes.filter((one) => one.slower).length, less = changes.filter((one) => one.accuracy).length;
  return [first,
    [of("now fails"), "new failures", `${of("still fails")} failed before, ${of("now works")} fixed`, of("now fails") > 0],
    [of("changed"), "packages with other bytes", `${slower} slower, ${less} less accurate, ${of("new")} new`], last];
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
    box.append(table(["class", "cells", "since", "what", "next step"], lines));
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
    el("td", {}, cause.since === "new" ? el("b", {}, "new") : cause.since || ""),
    el("td", {}, el("div", {}, cause.text), el("div", { class: "dim" }, who)),
    el("td", {}, ...withCommand(cause.hint)));
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
      found.map(compiledRow)));
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

const VERDICT_TONES = { "now fails": "bad", "still fails": "warn", "verified less": "warn", "now works": "good", slower: "warn", "less accurate": "warn", changed: "busy", new: "same", removed: "idle", unfinished: "idle", unchanged: "same" };
// Apart from what became of a cell: what got worse although it works.
const WORSE = { slower: (one) => one.slower, "less accurate": (one) => Boolean(one.accuracy) };
const FIRST_CHANGES = 8, MORE_CHANGES = 100;

function buildComparison() {
  const compared = doc.comparison, box = $("compared");
  if (!compared) return;
  box.hidden = false;
  const changes = compared.changes || [];
  const kinds = [...Object.entries(compared.counts || {}).filter(([, number]) => number)
    .map(([verdict, number]) => [verdict, number, (one) => one.verdict === verdict, compared.meanings[verdict]]),
  ...Object.entries(WORSE).map(([name, is]) => [name, changes.filter(is).length, is, "of those that work in both"])
    .filter(([, number]) => number)];
  let only = null, most = FIRST_CHANGES;
  const list = el("div", { class: "changes", tabindex: "0", role: "region", "aria-label": "cells that differ" });
  const chips = el("div", { class: "chips", role: "group", "aria-label": "what changed; press to filter" });
  const draw = () => {
    const kind = kinds.find(([name]) => name === only);
    const wanted = together(changes.filter((one) => !kind || kind[2](one)));
    list.replaceChildren(wanted.length ? table(["cell", "what", "why", "difference"], wanted.slice(0, most).map(changeRow))
      : el("p", { class: "dim" }, only === "unchanged" ? "Unchanged cells are only counted." : "Nothing differs."));
    if (wanted.length > most) {
      list.append(el("button", { type: "button", class: "quiet more", on: { click: () => { most += MORE_CHANGES; draw(); } } },
        `${wanted.length - most} more`));
    }
    for (const chip of chips.children) chip.setAttribute("aria-pressed", String(chip.dataset.verdict === only));
  };
  for (const [name, number, , meaning] of kinds) {
    chips.append(el("button", { type: "button", class: `tone-${VERDICT_TONES[name] || "idle"}`, "data-verdict": name,
      title: meaning, on: { click: () => { only = only === name ? null : name; most = FIRST_CHANGES; draw(); } } },
    el("b", {}, String(number)), ` ${name}`));
  }
  box.append(el("div", { class: "cardhead" }, el("h2", { id: "h-compared" }, `Since ${compared.before}`)), chips, list);
  draw();
  window.addEventListener("beforeprint", () => { most = changes.length; draw(); });
}

// Cells of one model that fail for one reason are one line.
function together(changes) {
  const groups = new Map();
  for (const one of changes) {
    const after = one.after || {};
    const alike = one.verdict === "changed" ? one.cell
      : JSON.stringify([one.verdict, one.cell.split("@")[0], after.failure, after.message, one.inputs, one.note, one.since, one.deltas]);
    groups.set(alike, [...(groups.get(alike) || []), one]);
  }
  return [...groups.values()];
}

function changeRow(group) {
  const one = group[0], links = group.map((each) => cellLink(each.cell, each.cell.split("@").pop()));
  const who = group.length === 1 ? cellLink(one.cell)
    : el("div", {}, `${counted(group.length, "cell")} of ${one.cell.slice(0, one.cell.lastIndexOf("@"))}: `,
      ...links.flatMap((link) => [link, " "]));
  const after = one.after || {}, before = one.before || {};
  const why = (one.inputs || []).map((cause) =>
    el("div", {}, el("b", {}, cause.origin === cause.name ? cause.name : `${cause.origin} ${cause.name}`), `: ${cause.before} → ${cause.after}`));
  if (after.failure) why.unshift(el("div", {}, `${after.failure}: ${(after.message || "").slice(0, 200)}`));
  if (one.since) why.unshift(el("div", {}, `since ${one.since}`));
  if (one.note) why.push(el("div", { class: "dim" }, one.note));
  const statuses = [before.status, after.status].filter(Boolean).map(words);
  const became = statuses[0] === statuses[1] ? "" : statuses.join(" → ");
  return el("tr", {}, el("td", {}, who),
    el("td", {}, el("span", { class: `pill tone-${VERDICT_TONES[one.verdict] || "idle"}` }, one.verdict)),
    el("td", {}, ...why), el("td", {}, one.accuracy && el("div", {}, one.accuracy), became && el("div", {}, became), ...(one.deltas || []).map((line) => el("div", { class: "dim" }, line))));
}
