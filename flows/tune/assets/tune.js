const told = JSON.parse($("data").textContent);
// A shape for each verdict, so that colour is not needed to tell them apart.
const SHAPES = {
  "better": ["▲", "good"], "no difference": ["●", "even"], "worse": ["▼", "bad"],
  "too noisy": ["≈", "even"], "inaccurate": ["✕", "bad"], "build failed": ["■", "bad"],
  "crashed": ["◆", "bad"], "timed out": ["◷", "bad"], "same": ["=", "even"],
};
const number = (value) => (value === null || value === undefined ? "" : `${value > 0 ? "+" : ""}${value.toFixed(1)} %`);

function facts(pairs) {
  return el("dl", {}, ...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, typeof value === "string" ? items(value.split(", ")) : value)]));
}

function verdict(text) {
  const [shape, tone] = SHAPES[text] || ["○", "even"];
  return el("span", { class: `verdict ${tone}` }, el("i", { "aria-hidden": "true" }, shape), text || "not settled");
}

function drawn(tag, facts) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(facts)) made.setAttribute(name, value);
  return made;
}

// Percent of gain that the plots of a tuning span, to both sides of the baseline.
function reach(trials) {
  const sizes = trials.flatMap((one) => [one.low, one.high, one.gain]).filter((one) => one !== null).map(Math.abs);
  return Math.min(100, Math.max(10, ...sizes) * 1.1);
}

function plot(one, span) {
  if (one.gain === null) return "";
  const at = (value) => 200 + 200 * Math.max(-1, Math.min(1, value / span));
  const tone = (SHAPES[one.verdict] || ["", "even"])[1];
  const made = drawn("svg", { class: `plot ${tone}`, viewBox: "0 0 400 24", preserveAspectRatio: "none", role: "img" });
  const name = drawn("title", {}), zero = drawn("line", { class: "zero", x1: 200, x2: 200, y1: 0, y2: 24 });
  const mark = drawn("rect", { class: "mark", x: at(one.gain) - 3, y: 7, width: 6, height: 10 });
  if ([one.low, one.high, one.floor].includes(null)) {
    // Recordings of other tools tell medians and no interval.
    name.textContent = `${number(one.gain)}, without an interval`;
    made.append(name, zero, mark);
    return made;
  }
  name.textContent = `${number(one.gain)}, interval ${number(one.low)} to ${number(one.high)}, noise floor ${one.floor.toFixed(1)} %`;
  made.append(
    name,
    drawn("rect", { class: "floor", x: at(-one.floor), y: 2, width: at(one.floor) - at(-one.floor), height: 20 }),
    zero,
    drawn("line", { class: "line", x1: at(one.low), x2: at(one.high), y1: 12, y2: 12 }),
    mark,
  );
  return made;
}

function trial(one, span, champion) {
  const more = [
    ["settings", one.settings.length ? items(one.settings) : ""], ["why in this place", one.placed], ["finding", one.finding],
    ["checked", one.accuracy], ["screening", one.screen === null ? "" : `${one.screen.toFixed(2)} times the baseline's time`],
    ["stages that ran", one.ran.length ? items(one.ran) : ""], ["doubts", one.warnings.join("; ")],
    ["numbers", one.gain === null ? "" : one.confirmed ? "of fresh sessions, the roles swapped" : "of the comparison"],
  ].filter(([, value]) => value);
  return el("tr", { class: one.key === champion ? "best" : null },
    el("td", {}, el("details", {}, el("summary", {}, one.key), el("div", { class: "dim" }, one.title), facts(more))),
    el("td", {}, verdict(one.verdict)), el("td", { class: "num" }, number(one.gain)),
    el("td", { class: "interval" }, plot(one, span)), el("td", {}, one.why));
}

function trials(one) {
  const span = reach(one.trials), end = span.toFixed(0);
  const axis = el("div", { class: "dim axis" }, el("span", {}, `${end} % slower`), el("span", {}, "baseline"), el("span", {}, `${end} % faster`));
  const made = table(["trial", "verdict", "gain", "", "why"], one.trials.map((row) => trial(row, span, one.champion)));
  made.querySelectorAll("th")[3].append(axis);
  return el("section", { class: "card" }, el("h2", {}, "Trials"),
    el("p", { class: "dim" }, "Lines are intervals that hold for all trials at once, with the gain in the middle; the band is the noise floor, and what lies in it may be chance."),
    el("div", { class: "narrow" }, axis.cloneNode(true)), el("div", { class: "wide" }, made));
}

function operators(one) {
  if (!one.operators.length) return one.champion && one.unexplained ? card("Where the gain comes from", el("p", { class: "dim" }, one.unexplained)) : "";
  const rows = one.operators.map((row) => el("tr", {}, el("td", { class: "mono" }, row.name), el("td", {}, row.what),
    ...[row.before_us, row.after_us, row.delta_us].map((us) => el("td", { class: "num" }, us.toFixed(1)))));
  return card("Where the gain comes from", el("div", { class: "wide" }, table(["operators", "", "baseline µs", "champion µs", "difference µs"], rows)));
}

const card = (title, ...inside) => el("section", { class: "card" }, el("h2", {}, title), ...inside);

function tuning(one) {
  const parts = [el("h2", {}, `${one.model}@${one.target}`)];
  if (one.emulated) parts.push(el("p", { class: "callout" }, "Emulated: software computed in place of the device. These times say nothing about the device, and nothing becomes champion."));
  if (one.message) parts.push(el("p", { class: "callout" }, one.message));
  const best = one.trials.find((row) => row.key === one.champion);
  parts.push(el("section", { class: `card ${best ? "champion" : "none"}` }, el("b", {}, one.conclusion), best && el("p", { class: "mono" }, items(best.settings))));
  if (one.trials.length) parts.push(trials(one));
  parts.push(operators(one));
  const candidates = one.candidates.map(([name, count, where]) => [name, el("span", {}, `${count}: `, items(where.split(", ")))]);
  parts.push(el("div", { class: "columns" }, card("How it was measured", facts(one.facts)),
    one.insight.length > 0 && card("What the model is like", facts(one.insight))));
  if (candidates.length) parts.push(card("Places that passes could rewrite", facts(candidates)));
  if (one.skipped.length) parts.push(card("Not tried", el("div", { class: "wide" }, table(["hypothesis", "why", "finding"],
    one.skipped.map((row) => el("tr", {}, el("td", {}, row.key), el("td", {}, row.why), el("td", {}, row.finding)))))));
  if (one.notes.length) parts.push(card("Notes", ...one.notes.map((text) => el("p", {}, text))));
  return el("div", { class: "tuning" }, ...parts.filter(Boolean));
}

if (told.tunings.length > 1) {
  $("overview").hidden = false;
  $("overview").querySelector(".wide").append(table(["model", "target", "status", "conclusion"], told.tunings.map((one) =>
    el("tr", {}, el("td", {}, one.model), el("td", {}, one.target), el("td", {}, one.status), el("td", {}, one.conclusion)))));
}
$("tunings").append(...told.tunings.map(tuning));
$("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
});
document.documentElement.dataset.ready = "yes";
