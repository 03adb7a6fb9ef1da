// The document, indexes into it, and how values are written. Text is only ever set as text.
const doc = JSON.parse(document.getElementById("data").textContent);
const cells = doc.cells || [], rows = doc.rows || [], columns = doc.columns || [];
const looks = new Map(doc.statuses.map((one) => [one.name, one]));
const places = new Map(cells.map((cell, index) => [cell.id, index]));
const at = new Int32Array(rows.length * columns.length).fill(-1);
cells.forEach((cell, index) => { at[cell.row * columns.length + cell.column] = index; });

const causeOf = new Map((doc.failures || []).flatMap((cause, place) =>
  [...(cause.cells || []), ...(cause.exports || [])].map((index) => [index, String(place)])));

// As `show_duration` in flows/output/quantity.py writes it; a test compares the two.
function duration(seconds) {
  if (seconds === undefined) return "";
  if (seconds === 0) return "0s";
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)}ms`;
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  if (seconds < 90) return `${Math.round(seconds)}s`;
  const two = (number) => String(number).padStart(2, "0");
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60), hours = Math.floor(minutes / 60);
  if (minutes < 90) return `${minutes}m${two(whole % 60)}s`;
  if (hours < 48) return `${hours}h${two(minutes % 60)}m`;
  return `${Math.floor(hours / 24)}d${hours % 24 ? `${two(hours % 24)}h` : ""}`;
}

function moment(seconds) {
  if (seconds === undefined) return "";
  const date = new Date(seconds * 1000), two = (n) => String(n).padStart(2, "0");
  const off = -date.getTimezoneOffset(), ahead = Math.abs(off);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())} ` +
    `${off < 0 ? "-" : "+"}${two(Math.floor(ahead / 60))}${two(ahead % 60)}`;
}

const rateOf = (priority, column) => (doc.rates || []).find((one) => one.priority === priority && one.column === column);
const rateText = (rate) => `${rate.passed}/${rate.ended} · ${Math.floor((100 * rate.passed) / rate.ended)}%`;
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
const words = (status) => status.replaceAll("_", " ");
const clock = (seconds) => moment(seconds).slice(11, 19);
const owner = (place) => (place === undefined ? "" : doc.owners[place]);

// A slot by what tells it apart: HOST/PID/SLOT where one name is not enough.
function ownerLabels(named) {
  const parts = named.map((place) => owner(place).split("/"));
  const hosts = new Set(parts.map((one) => one[0]));
  const short = parts.map((one) => (one.length < 3 ? one.join("/") : hosts.size > 1 ? `${one[0]}/${one[2]}` : one[2]));
  return short.map((label, at) => (short.indexOf(label) === short.lastIndexOf(label) ? label : parts[at].join("/")));
}

const isExport = (cell) => columns[cell.column].label.split(":")[0] === "export";
const toneOf = (status) => (looks.get(status) || { tone: "idle" }).tone;

function pill(status) {
  const look = looks.get(status);
  return el("span", { class: `pill tone-${look ? look.tone : "idle"}`, title: look && look.meaning },
    `${look ? look.glyph : ""} ${words(status)}`);
}
