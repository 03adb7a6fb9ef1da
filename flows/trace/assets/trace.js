const { trace, difference } = JSON.parse(document.getElementById("data").textContent);
const about = trace.metadata, summary = trace.summary, operators = trace.operators;
const samples = about.num_samples;
const markOf = (emulated) => (emulated ? " (emulated)" : "");
const MOST_GROUPS = 25;

function time(us) {
  if (us === undefined || us === null) return "";
  const length = Math.abs(us);
  if (length >= 1e6) return `${(us / 1e6).toFixed(2)} s`;
  if (length >= 1e4) return `${(us / 1e3).toFixed(1)} ms`;
  if (length >= 100) return `${us.toFixed(0)} µs`;
  return length >= 1 || us === 0 ? `${us.toFixed(1)} µs` : `${us.toFixed(3)} µs`;
}

const percent = (value) => (value === undefined || value === null ? "" : `${value.toFixed(value < 10 ? 2 : 1)}%`);
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const typeOf = (one) => one.onnx_op_type || one.op_type || "unknown";
const often = (one) => (samples ? one.sample_count / samples : 1);
const each = (one) => (one.p50_us ?? one.avg_us) * often(one);
const shareOf = (one) => one.estimated_percent ?? one.percent_of_total;
const known = (name) => operators.some((one) => one[name] !== undefined && one[name] !== null);

function facts(pairs) {
  const told = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el("dl", {}, ...told.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value))]));
}

function track(share, tone) {
  const bar = el("i", {});
  bar.style.width = `${Math.max(0, Math.min(100, share))}%`;
  return el("span", { class: tone ? `track ${tone}` : "track" }, bar);
}

function remarks() {
  const told = [];
  if (about.emulated) told.push("Emulated: software computed in place of the device. These times say nothing about the device.");
  if (trace.fallback_reason) told.push(`Detail was asked for, and this is the basic level: ${trace.fallback_reason.replaceAll("_", " ")}.`);
  if (trace.status !== "ok" && trace.status !== "basic_fallback") told.push(`No operators: ${trace.status.replaceAll("_", " ")}.`);
  if (trace.error) told.push(trace.error);
  told.push(...(about.warnings || []).map((text) => `Doubtful times: ${text}.`));
  $("remarks").append(...told.map((text) => el("p", { class: "callout" }, text)));
}

function tiles() {
  const of = trace.statistics, mark = about.emulated ? ", emulated" : "";
  const rows = [
    [time(summary.unprofiled_us), `one inference${mark}`],
    [time(summary.inference_us), `one inference${summary.unprofiled_us === undefined ? "" : " under the profiler"}${mark}`],
    [time(summary.operators_us), `in operators${summary.unprofiled_us === undefined ? "" : " under the profiler"}${mark}`],
    [time(summary.profiler_operator_us), `added to each operator by the profiler${mark}`],
    [time(of.other_us), `outside of operators${summary.unprofiled_us === undefined ? "" : " under the profiler"}${mark}`],
    [time(summary.wall_us), `the run call while tracing${mark}`],
    [operators.length, of.mapped_operators === undefined ? "operators" : `operators, ${of.mapped_operators} known in the graph`],
    [samples, "measured iterations"],
  ];
  $("tiles").append(...rows.filter(([value]) => value !== "" && value !== undefined)
    .map(([value, text]) => el("div", { class: "tile" }, el("b", {}, String(value)), el("span", {}, text))));
}

function memory() {
  const rows = [["DRAM read", summary.dram_read_bytes], ["DRAM written", summary.dram_write_bytes],
    ["VTCM read", summary.vtcm_read_bytes], ["VTCM written", summary.vtcm_write_bytes], ["VTCM peak", summary.vtcm_peak_bytes]]
    .filter(([, value]) => value !== undefined && value !== null);
  if (!rows.length) return;
  $("memory").hidden = false;
  $("memory").lastElementChild.append(facts(rows.map(([name, value]) => [name, size(value)])));
}

function provenance() {
  $("facts").append(facts([
    ["model", about.model], ["component", about.component],
    ["on", `${about.ep} ${about.device}${markOf(about.emulated)}`],
    ["runtime", about.runtime], ["machine", about.machine], ["target", about.target],
    ["level", about.tracing_level], ["source", about.tracing_backend], ["when", about.timestamp],
    ["warm-up", about.warmup], ["threads", about.threads], ["partitions", about.partitions],
    ["nodes of the graph", about.onnx_nodes], ["status", trace.status],
    ["tree", about.tree && el("span", { class: "mono" }, about.tree)],
  ]));
}

let wantedType = null, order = "time", query = "";

function types() {
  const totals = new Map();
  for (const one of operators) {
    const found = totals.get(typeOf(one)) || { us: 0, count: 0, share: 0 };
    found.us += one.estimated_us === undefined ? each(one) : one.estimated_us * often(one);
    found.count += 1;
    found.share += shareOf(one);
    totals.set(typeOf(one), found);
  }
  const sorted = [...totals].sort((a, b) => b[1].us - a[1].us), most = sorted.length ? sorted[0][1].us : 1;
  $("types").append(...sorted.map(([name, found]) => {
    const button = el("button", { type: "button", class: "type", "aria-pressed": "false", title: "show only these",
      on: { click: () => chooseType(name) } },
    el("span", {}, `${name} `, el("span", { class: "dim" }, `× ${found.count}`)),
    el("span", { class: "num" }, `${time(found.us)} · ${percent(found.share)}`), track((100 * found.us) / most));
    button.dataset.type = name;
    return button;
  }));
  if (!sorted.length) $("types").append(el("p", { class: "dim" }, "No operator is known."));
}

function chooseType(name) {
  wantedType = wantedType === name ? null : name;
  for (const button of document.querySelectorAll(".type")) button.setAttribute("aria-pressed", String(button.dataset.type === wantedType));
  show();
}

const texts = new Map(operators.map((one) => [one, [one.name, one.op_path, typeOf(one), one.op_type, one.provider,
  ...(one.onnx_nodes || []).flatMap((node) => [node.name, node.op_type]), ...(one.onnx_inputs || []), ...(one.onnx_outputs || [])]
  .filter(Boolean).join("\n").toLowerCase()]));

const COLUMNS = [
  ["p50_us", "median", time], ["avg_us", "mean", time], ["estimated_us", "estimate", time], ["share", "share", percent], ["cumulative", "up to here", percent], ["p90_us", "p90", time],
  ["dram_read_bytes", "DRAM read", size], ["dram_write_bytes", "DRAM written", size],
  ["vtcm_hit_ratio", "VTCM hits", (value) => (value === undefined || value === null ? "" : percent(100 * value))],
];

function show() {
  const sorted = [...operators].sort(order === "time" ? (a, b) => each(b) - each(a) : (a, b) => a.order - b.order);
  let sum = 0;
  const cumulative = new Map(sorted.map((one) => [one, (sum += shareOf(one))]));
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = sorted.filter((one) => (wantedType === null || typeOf(one) === wantedType) && words.every((word) => texts.get(one).includes(word)));
  const columns = COLUMNS.filter(([name]) => name === "cumulative" || name === "share" || known(name));
  const most = Math.max(...operators.map(shareOf), 1e-9);
  const lines = found.map((one) => el("tr", {},
    el("td", { class: "num dim" }, String(order === "time" ? sorted.indexOf(one) + 1 : one.order)),
    el("td", { class: "name" }, details(one)), el("td", {}, typeOf(one)),
    el("td", { class: "share" }, track((100 * shareOf(one)) / most)),
    ...columns.map(([name, , write]) => el("td", { class: "num" }, write(name === "cumulative" ? cumulative.get(one) : name === "share" ? shareOf(one) : one[name])))));
  $("count").textContent = found.length === operators.length ? counted(found.length, "operator") : `${found.length} of ${operators.length} operators`;
  $("operators").replaceChildren(found.length ? table(["#", "operator", "type", "", ...columns.map(([, title]) => title)], lines)
    : el("p", { class: "dim" }, operators.length ? "No operator matches." : "No operator is known."));
}

const listed = (names) => (names && names.length ? items(names) : "");

function details(one) {
  const nodes = one.onnx_nodes || [];
  const rows = [
    ["source's name", one.op_path !== one.name ? one.op_path : ""], ["source's type", one.op_type !== typeOf(one) ? one.op_type : ""],
    ["provider", one.provider], ["holds", nodes.length > 1 ? items(nodes.map((node) => `${node.name} (${node.op_type})`)) : ""],
    ["reads", listed(one.onnx_inputs)], ["makes", listed(one.onnx_outputs)],
    ["type and shape", [one.data_type, one.dims && `[${one.dims.join(", ")}]`].filter(Boolean).join(" ")],
    ["VTCM read, written", one.vtcm_read_bytes === undefined ? "" : `${size(one.vtcm_read_bytes)}, ${size(one.vtcm_write_bytes)}`],
    ["dominant path", time(one.dominant_path_us)],
    ["runs", one.sample_count !== samples ? `${one.sample_count} of ${samples}` : ""],
    ["samples", (one.samples_us || []).slice(0, 12).map(time).join(", ") + ((one.samples_us || []).length > 12 ? ", ..." : "")],
  ].filter(([, value]) => value);
  const label = [one.name, nodes.length > 1 && el("span", { class: "dim" }, ` + ${counted(nodes.length - 1, "node")}`)];
  if (!rows.length) return el("span", {}, ...label);
  const box = el("details", {}, el("summary", {}, ...label));
  box.addEventListener("toggle", () => { if (box.open && box.children.length === 1) box.append(facts(rows)); });
  return box;
}

function compared() {
  if (!difference) return;
  const box = $("difference"), told = difference.groups.filter((one) => one.delta_us !== 0);
  box.hidden = false;
  const change = difference.before_us ? ` (${difference.delta_us > 0 ? "+" : ""}${(100 * difference.delta_us / difference.before_us).toFixed(1)}%)` : "";
  const [was, now] = [difference.before_emulated, difference.after_emulated].map(markOf);
  box.firstElementChild.textContent = `Against ${difference.before}: operators ${time(difference.before_us)}${was} → ${time(difference.after_us)}${now}${change}`;
  const most = Math.max(...told.map((one) => Math.abs(one.delta_us)), 1e-9);
  const names = (list) => list.map((one) => one.name);
  const lines = told.map((one) => {
    const tone = one.delta_us > 0 ? "more" : "less";
    return el("tr", {}, el("td", { class: `num ${tone}` }, `${one.delta_us > 0 ? "+" : "−"}${time(Math.abs(one.delta_us))}`),
      el("td", { class: "share" }, track((100 * Math.abs(one.delta_us)) / most, tone)),
      el("td", { class: "num" }, time(one.before_us)), el("td", { class: "num" }, time(one.after_us)),
      el("td", { class: "name" }, one.name, one.what && el("div", { class: "dim" }, one.what),
        names(one.before).join() !== names(one.after).join() && el("div", { class: "dim" }, listed(names(one.before)) || "nothing", " → ", listed(names(one.after)) || "nothing")));
  });
  box.lastElementChild.append(...difference.notes.map((note) => el("p", { class: "dim" }, note)),
    lines.length ? table(["difference", "", `before${was}`, `after${now}`, "operators"], lines) : el("p", { class: "dim" }, "No operator takes longer or shorter."));
  lines.slice(MOST_GROUPS).forEach((line) => { line.hidden = true; });
  if (lines.length <= MOST_GROUPS) return;
  const rest = el("button", { type: "button", class: "quiet", on: { click: () => {
    lines.forEach((line) => { line.hidden = false; });
    rest.remove();
  } } }, `${lines.length - MOST_GROUPS} more`);
  box.lastElementChild.append(rest);
}

$("search").addEventListener("input", () => { query = $("search").value; show(); });
for (const button of document.querySelectorAll("[data-order]")) {
  button.addEventListener("click", () => {
    order = button.dataset.order;
    for (const other of document.querySelectorAll("[data-order]")) other.setAttribute("aria-pressed", String(other === button));
    show();
  });
}
$("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = (root.dataset.theme || (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
});
$("about").textContent = [`${about.ep} ${about.device}${markOf(about.emulated)}`, about.timestamp].filter(Boolean).join(" · ");
for (const title of document.querySelectorAll("[data-times]")) title.append(markOf(about.emulated));
remarks();
tiles();
memory();
provenance();
types();
compared();
show();
document.documentElement.dataset.ready = "yes";
