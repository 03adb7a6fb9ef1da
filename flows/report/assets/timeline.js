// What each worker did when: one canvas, so thousands of bars are one element.
const canvas = $("timeline"), tip = $("tip");
const LANE = 30, AXIS = 22, LABEL = 132, GAP = 26;
const labels = ownerLabels((doc.timeline.workers || []).map((one) => one.owner));
const stretches = doc.timeline.stretches || [], workers = doc.timeline.workers || [];

function scale(width) {
  const room = Math.max(60, width - LABEL - 12 - GAP * Math.max(0, stretches.length - 1));
  const total = stretches.reduce((sum, [start, end]) => sum + Math.max(end - start, 0.001), 0) || 1;
  let left = LABEL;
  const parts = stretches.map(([start, end]) => {
    const part = { start, end: Math.max(end, start + 0.001), left, width: (room * Math.max(end - start, 0.001)) / total };
    left += part.width + GAP;
    return part;
  });
  return { parts, x(time) {
    const part = parts.find((one) => time <= one.end) || parts[parts.length - 1];
    return part.left + (part.width * Math.max(0, Math.min(time, part.end) - part.start)) / (part.end - part.start);
  } };
}

function drawTimeline() {
  if (!stretches.length) { $("timebox").hidden = true; return; }
  const width = $("timebox").clientWidth, height = AXIS + workers.length * LANE, ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d"), theme = getComputedStyle(document.documentElement);
  const colour = (name) => theme.getPropertyValue(`--${name}`).trim();
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  const space = scale(width);
  drawAxis(pen, space, height, colour);
  workers.forEach((worker, place) => {
    const top = AXIS + place * LANE;
    pen.fillStyle = colour("dim");
    pen.textAlign = "left";
    pen.fillText(fitted(pen, labels[place], LABEL - 8), 0, top + 17);
    for (const bar of worker.bars) {
      const left = space.x(bar.start), wide = Math.max(1, space.x(bar.end) - left);
      if (bar.lane === 1) {
        pen.fillStyle = colour("accent");
        pen.fillRect(left, top + 23, wide, 4);
        continue;
      }
      const tone = toneOf(cells[bar.cell].status);
      pen.fillStyle = colour(bar.what === "verifying" ? "busy-bar" : `${tone}-bar`);
      pen.fillRect(left, top + 4, wide, 18);
      if (wide > 4) { pen.strokeStyle = colour("card"); pen.strokeRect(left + 0.5, top + 4.5, wide - 1, 17); }
      if (tone === "bad" && wide > 14) { pen.fillStyle = colour("bad-fg"); pen.fillText("✕", left + 4, top + 17); }
    }
  });
}

function fitted(pen, text, room) {
  let from = 0;
  while (from < text.length && pen.measureText((from ? "…" : "") + text.slice(from)).width > room) from += 1;
  return (from ? "…" : "") + text.slice(from);
}

function drawAxis(pen, space, height, colour) {
  pen.lineWidth = 1;
  space.parts.forEach((part, place) => {
    pen.fillStyle = colour("dim");
    pen.strokeStyle = colour("line");
    const wanted = Math.max(1, Math.floor(part.width / 110)), span = part.end - part.start;
    for (let tick = 0; tick <= wanted; tick += 1) {
      const time = part.start + (span * tick) / wanted, x = Math.round(space.x(time)) + 0.5;
      pen.beginPath(); pen.moveTo(x, AXIS - 4); pen.lineTo(x, height); pen.stroke();
      pen.textAlign = tick === 0 ? "left" : tick === wanted ? "right" : "center";
      if (tick < wanted || part.width > 150) pen.fillText(clock(time), x, 11);
    }
    if (place) { pen.textAlign = "center"; pen.fillText("⋯", part.left - GAP / 2, AXIS + 14); }
  });
}

function barAt(event) {
  const place = Math.floor((event.offsetY - AXIS) / LANE), worker = workers[place];
  if (!worker || event.offsetY < AXIS) return null;
  const space = scale($("timebox").clientWidth), lane = (event.offsetY - AXIS) % LANE > 22 ? 1 : 0;
  let best = null;
  for (const bar of worker.bars) {
    if (bar.lane !== lane) continue;
    const left = space.x(bar.start), right = Math.max(left + 2, space.x(bar.end));
    if (event.offsetX >= left - 1 && event.offsetX <= right + 1) best = bar;
  }
  return best;
}

function buildTimeline() {
  new ResizeObserver(() => requestAnimationFrame(drawTimeline)).observe($("timebox"));
  canvas.addEventListener("mousemove", (event) => {
    const bar = barAt(event);
    tip.hidden = !bar;
    if (!bar) return;
    tip.textContent = `${cells[bar.cell].id}: ${bar.what} ${duration(bar.end - bar.start)}`;
    tip.style.left = `${Math.min(event.offsetX + 12, $("timebox").clientWidth - 240)}px`;
    tip.style.top = `${event.offsetY + 14}px`;
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  canvas.addEventListener("click", (event) => { const bar = barAt(event); if (bar) openCell(bar.cell); });
  const key = (name, text) => {
    const made = el("span", {}, el("i", {}), text);
    made.firstChild.style.background = `var(--${name})`;
    return made;
  };
  $("timekey").append(key("good-bar", "build of a good cell"), key("bad-bar", "of a failed one (✕)"),
    key("busy-bar", "verifying"), key("accent", "publishing (thin, below)"));
  const span = stretches.reduce((sum, [start, end]) => sum + end - start, 0) || 1;
  $("workers").append(workers.length ? table(["worker", "cells", "building and verifying", "share of the time"],
    workers.map((one) => el("tr", {}, el("td", { class: "mono when" }, owner(one.owner)), el("td", { class: "num" }, String(one.cells)),
      el("td", { class: "num" }, duration(one.busy)), el("td", { class: "num" }, `${Math.round((100 * one.busy) / span)}%`))))
    : el("p", { class: "dim" }, "Nothing was built in this sweep."));
}
