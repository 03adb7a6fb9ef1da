// Everything about one cell.
const panel = $("panel");

function openCell(index, { focus = true } = {}) {
  const cell = cells[index];
  panel.replaceChildren(...panelParts(cell, index));
  panel.hidden = false;
  document.body.classList.add("beside");
  reveal(index);
  markOpen(index);
  panel.scrollTop = 0;
  if (focus) $("p-title").focus();
  writeAddress();
}

function closePanel() {
  if (panel.hidden) return false;
  panel.hidden = true;
  document.body.classList.remove("beside");
  markOpen(-1);
  writeAddress();
  focusActive();
  return true;
}

function step(by) {
  if (!matches.length) return;
  const here = matches.indexOf(opened);
  const next = here < 0 ? (by > 0 ? 0 : matches.length - 1) : (here + by + matches.length) % matches.length;
  openCell(matches[next]);
}

function panelParts(cell, index) {
  const here = matches.indexOf(index);
  const place = here < 0 ? "" : `${here + 1} of ${matches.length}`;
  const title = el("h2", { id: "p-title", tabindex: "-1" }, cell.id);
  return [
    el("div", { class: "bar" },
      el("button", { type: "button", class: "quiet", title: "previous match (p)", on: { click: () => step(-1) } }, "‹ previous"),
      el("button", { type: "button", class: "quiet", title: "next match (n)", on: { click: () => step(1) } }, "next ›"),
      el("span", { class: "dim grow1" }, place),
      el("button", { type: "button", class: "quiet", id: "close", title: "close (Esc)", on: { click: closePanel } }, "✕ close")),
    title,
    el("p", {}, pill(cell.status), " ", el("span", { class: "dim" }, looks.get(cell.status).meaning), " ", copyButton(cell.id, title)),
    ...failureParts(cell),
    section("Package", facts([
      ["name", cell.page ? el("a", { href: cell.page }, cell.package) : copyable(cell.package)], ["version", copyable(cell.version)],
      ["size", size(cell.bytes)], ["same as", cell.detail && cell.detail.same_as && mono(cell.detail.same_as)],
      ["context", cell.sharing && sharingText(cell.sharing)],
      ["lacks", cell.detail && cell.detail.left_out && lacksList(cell.detail.left_out)],
      ["built in", duration(cell.seconds)], ["attempts", cell.attempts || undefined],
      ["source", source(rows[cell.row].source)], ["model type", rows[cell.row].type],
      ["verified on", cell.proof && cell.proof.told],
      ["run on", cell.run_on && [cell.run_on.name, cell.run_on.why].filter(Boolean).join(": ")],
      ["verified again", cell.again],
      ["notices", cell.notices && cell.notices.join("; ")],
    ])),
    cell.stages && section("Stages", stageTable(cell)),
    cell.opening && section("Opening", openingTable(cell.opening)),
    section("Latency", latencyParts(cell)),
    section("Traces", traceLinks(cell)),
    section("Files on the machine that made this report", fileLinks(cell.files)),
    section("Digests", digestFacts(cell)),
    cell.rungs && section("Verification", rungList(cell)),
    cell.policy !== undefined && section("Effective policy", policyFacts(doc.policies[cell.policy])),
    cell.steps && section("History and attempts", stepTable(cell)),
    cell.log !== undefined && section("End of the log", el("pre", { tabindex: "0" }, doc.logs[cell.log])),
    section("On the command line", el("div", {}, ...commands(cell).map((line) => el("div", {}, copyable(line))))),
  ].filter(Boolean);
}

function sharingText(sharing) {
  return `${sharing.graphs} graphs share one: ${size(sharing.together)}`;
}

function lacksList(lacks) {
  return el("ul", {}, ...Object.entries(lacks).map(([cell, why]) => el("li", {}, mono(cell), `: ${why}`)));
}

function section(title, content) {
  return content && el("section", {}, el("h3", {}, title), content);
}

const mono = (text) => el("span", { class: "mono" }, text);
const source = (from) => from && [from.kind, from.ref, from.revision].filter(Boolean).join(" ");

function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== undefined && value !== "" && value !== null);
  if (!known.length) return null;
  return el("dl", {}, ...known.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value))]));
}

function failureParts(cell) {
  const parts = [];
  if (cell.failure) {
    const where = [cell.stage && `in ${cell.stage}`, cell.exit_code !== undefined && `exit ${cell.exit_code}`,
      cell.retryable ? "retryable" : "not retried by itself"].filter(Boolean).join(", ");
    const cause = (doc.causes || {})[cell.failure] || {};
    parts.push(el("div", { class: "callout tone-" + toneOf(cell.status) },
      el("b", {}, `${cell.failure}: ${cause.meaning || ""}`), cell.message || "", el("div", {}, where)));
    parts.push(el("div", { class: "next" }, el("b", {}, "Next step: "), ...withCommand(cell.hint || cause.next_step || "")));
  } else if (cell.message) {
    parts.push(el("div", { class: "next" }, cell.message));
  }
  return parts;
}

function stageTable(cell) {
  const rowsOf = cell.stages.map((one) => el("tr", {},
    el("td", {}, one.stage, one.component ? el("span", { class: "dim" }, ` ${one.component}`) : ""),
    el("td", {}, el("span", { class: "pill tone-" + (one.reused ? "same" : "good") }, one.reused ? "= reused" : "✓ run")),
    el("td", { class: "num" }, one.reused ? (one.saved ? `saved ${duration(one.saved)}` : "") : duration(one.seconds)),
    el("td", { class: "num" }, size(one.bytes)),
    el("td", { class: "num" }, one.memory ? size(one.memory) : "")));
  return table(["stage", "", "time", "made", "peak memory"], rowsOf);
}

function openingTable(opening) {
  const sides = (one) => [one.portable || {}, one.compiled || {}];
  const shown = (side, name, write) => el("td", { class: "num" }, side[name] == null ? "not opened" : write(side[name]));
  const rowsOf = (opening.models || []).map((one) => el("tr", {}, el("td", { class: "mono" }, one.model),
    ...sides(one).map((side) => shown(side, "seconds", duration)), ...sides(one).map((side) => shown(side, "memory", size))));
  return el("div", {},
    el("p", { class: "dim" }, opening.on ? `on ${opening.on}` : "", opening.emulated && "; measured on an emulator: these times and sizes say nothing about the device"),
    table(["", "portable", "compiled", "memory, portable", "compiled"], rowsOf));
}

function latencyParts(cell) {
  const found = cell.benchmarks || [], compared = cell.comparisons || [];
  if (!found.length && !compared.length && !cell.unmeasured) return null;
  const ms = (value) => (value === undefined ? "" : value < 10 ? value.toPrecision(3) : value.toFixed(1));
  const lines = found.map((one) => el("tr", {},
    el("td", {}, one.component ? el("div", { class: "mono" }, one.component) : "", one.on,
      el("div", { class: "dim" }, [one.version, `on ${one.machine}`, moment(one.at)].filter(Boolean).join(", ")),
      el("div", { class: "dim" }, one.protocol),
      ...(one.warnings || []).map((text) => el("div", { class: "short" }, text))),
    ...["p50", "p90", "p99"].map((name) => el("td", { class: "num" }, ms(one[name]))),
    el("td", { class: "num" }, one.open_cold === undefined ? "" : duration(one.open_cold))));
  return el("div", {},
    cell.unmeasured && el("p", {}, `Not measured: ${cell.unmeasured}`),
    [...found, ...compared].some((one) => one.emulated) && el("p", { class: "next" }, "Measured on an emulator: these times say nothing about the device."),
    found.length > 0 && table(["milliseconds on", "p50", "p90", "p99", "cold opening"], lines),
    compared.length > 0 && table(["compared in turns", "other p50", "p50", "verdict"], compared.map((one) => el("tr", {},
      el("td", {}, `against ${one.against}`, el("div", { class: "dim" }, [one.component, one.on, `on ${one.machine}`, moment(one.at)].filter(Boolean).join(", ")),
        el("div", { class: "dim" }, one.protocol)),
      el("td", { class: "num" }, ms(one.other_p50)), el("td", { class: "num" }, ms(one.p50)),
      el("td", {}, one.verdict, el("div", { class: "dim" }, one.told))))));
}

function traceLinks(cell) {
  if (!cell.traces) return null;
  return el("ul", {}, ...cell.traces.map((one) => el("li", {},
    el("a", { href: one.page }, [one.component, one.on].filter(Boolean).join(" "), `, ${one.level}`),
    el("span", { class: "dim" }, ` ${[one.version, `on ${one.machine}`, moment(one.at)].join(", ")}`))));
}

// A path can be copied everywhere; a browser follows it only from a page that is itself on disk.
function fileLinks(files) {
  if (!files) return null;
  const address = (path) => `file://${path.startsWith("/") ? "" : "/"}${path.split(/[\\/]/).map(encodeURIComponent).join("/").replace("%3A", ":")}`;
  return facts(Object.entries(files).map(([name, path]) => [name, copyable(path, el("a", { href: address(path) }, path))]));
}

// A hint, with a button for the command in it.
function withCommand(hint) {
  const found = /modelmill [a-z]+(?: [^;,()]+)?/.exec(hint);
  if (!found) return [hint];
  const command = found[0].trim();
  return [hint.slice(0, found.index), copyable(command), hint.slice(found.index + command.length)];
}

function digestFacts(cell) {
  const content = rows[cell.row].content || {};
  const keys = (cell.stages || []).map((one) => [[one.stage, one.component].filter(Boolean).join(" ") + " key", doc.keys[one.key]]);
  return facts([["tree", cell.tree], ["source", content.digest], ["commit", content.commit], ...keys]
    .map(([name, value]) => [name, value && copyable(value)]));
}

function rungList(cell) {
  return el("div", {}, ...cell.rungs.map((rung) => {
    const [tone, glyph] = rung.passed === true ? ["good", "✓ passed"]
      : rung.passed === false ? ["bad", "✕ failed"] : ["idle", "– not run"];
    const more = rung.evidence && Object.keys(rung.evidence).length > 0;
    return el("details", {}, el("summary", {}, el("span", { class: `pill tone-${tone}` }, glyph), ` ${rung.name} `,
      el("span", { class: "dim" }, String(rung.detail || "").slice(0, 300))),
      more && el("pre", {}, JSON.stringify(rung.evidence, null, 1)));
  }));
}

const POLICY_NAMES = { default: "target's default", asked: "asked for" };

function policyFacts(policy) {
  const flat = Object.entries(policy).filter(([, value]) => value !== null && value !== "" &&
    !(typeof value === "object" && Object.keys(value).length === 0));
  const shown = (value) => (Array.isArray(value) ? value.join(", ") : typeof value === "object"
    ? Object.entries(value).map(([name, item]) => `${name}=${item}`).join(", ") : String(value));
  return facts(flat.map(([name, value]) => [POLICY_NAMES[name] || words(name), shown(value)]));
}

function stepTable(cell) {
  return table(["when", "", "after", "by"], cell.steps.map((one, place) => el("tr", {},
    el("td", { class: "mono when" }, moment(one.at)),
    el("td", {}, words(one.what), one.why && el("div", { class: "dim" }, one.why)),
    el("td", { class: "num" }, place ? `+${duration(Math.max(0, one.at - cell.steps[place - 1].at))}` : ""),
    el("td", { class: "dim" }, owner(one.owner)))));
}

function commands(cell) {
  const stamp = doc.heading.stamp, lines = [];
  if (cell.failure) lines.push(`modelmill retry ${stamp} --only '${cell.id}'`);
  if (!isExport(cell)) lines.push(`modelmill explain '${cell.id}' --stamp ${stamp}`);
  if (cell.status === "published") {
    lines.push(`modelmill feed show ${cell.package} ${cell.version}`, `modelmill feed pull ${cell.package} ${cell.version}`);
  }
  for (const name of cell.tunings || []) lines.push(`modelmill tune report ${name}`);
  return lines;
}
