// Keeps the page up to date and draws its charts. Without it each page is whole, and as of when it was loaded.
"use strict";
(() => {
  const live = document.getElementById("live");
  const state = document.getElementById("state");
  const pause = document.getElementById("pause");
  if (!live || !live.dataset.of) return;

  // Charts: each is kept with the element that it is drawn in.
  const charts = new Map();
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const draw = (plot, again) => {
    const known = charts.get(plot);
    if (known && known.text === plot.dataset.plot && !again) return;
    const { names, at, values, span } = JSON.parse(plot.dataset.plot);
    if (known) known.chart.destroy();
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule") } };
    const time = (second, from, to) => new Date(second * 1000).toISOString().slice(from, to).replace("T", " ");
    const dollars = (value) => (value == null ? "unknown" : "$" + value.toFixed(2));
    const chart = new uPlot({
      width: Math.max(plot.clientWidth, 200),
      height: 220,
      tzDate: (second) => uPlot.tzDate(new Date(second * 1000), "Etc/UTC"),
      series: [{ label: "UTC", value: (_, second) => (second == null ? "" : time(second, 0, span ? 16 : 10)) }, ...names.map((label, n) => (
        { label, stroke: colour("--line-" + (n % 5)), width: 2, dash: n % 2 ? [6, 3] : undefined, value: (_, v, __, at) => (at == null ? "" : dollars(v)),
          points: { show: at.length < 40 } }))],
      scales: { x: { range: (_, low, high) => (span ? [high - span, high] : low === high ? [low - 43200, low + 43200] : [low, high]) },
        y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] } },
      axes: [{ ...axis, values: (_, ticks) => ticks.map((tick) => (span ? time(tick, 11, 16) : time(tick, 5, 10))) }, { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => "$" + tick) }],
    }, [at, ...values], plot);
    charts.set(plot, { chart, text: plot.dataset.plot });
  };
  const drawAll = (again) => {
    for (const [plot, { chart }] of charts) {
      if (!plot.isConnected) { chart.destroy(); charts.delete(plot); }
    }
    for (const plot of live.querySelectorAll("[data-plot]")) draw(plot, again);
  };

  // Makes what is shown like what came, and leaves alone what is the same: focus, scrolling and what is open stay.
  const key = (node) => (node.nodeType === 1 ? node.dataset.key : undefined);
  const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
  const patch = (have, want) => {
    if (have.nodeType !== 1) {
      if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
      return;
    }
    for (const { name, value } of want.attributes) {
      if (have.getAttribute(name) !== value) have.setAttribute(name, value);
    }
    for (const name of have.getAttributeNames()) {
      if (!want.hasAttribute(name) && !(name === "open" && have.nodeName === "DETAILS")) have.removeAttribute(name);
    }
    if (!("plot" in have.dataset)) patchAll(have, want);
  };
  const patchAll = (have, want) => {
    const keyed = new Map();
    for (const child of have.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
    let at = have.firstChild;
    for (const child of [...want.childNodes]) {
      const found = key(child) ? keyed.get(key(child)) : at;
      if (found && alike(found, child)) {
        if (found === at) at = at.nextSibling; else have.insertBefore(found, at);
        patch(found, child);
      } else {
        have.insertBefore(child, at);
      }
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };
  const show = (html) => {
    const came = document.createElement("template");
    came.innerHTML = html;
    patchAll(live, came.content);
    drawAll(false);
  };

  // Updates: one stream, closed while nobody looks.
  let stream = null, late = 0, isPaused = false;
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };
  const close = () => { if (stream) { stream.close(); stream = null; } clearTimeout(late); };
  const open = () => {
    if (stream || isPaused || document.hidden) return;
    stream = new EventSource("/console/events?of=" + encodeURIComponent(live.dataset.of));
    stream.addEventListener("main", (event) => { clearTimeout(late); say("Live"); show(JSON.parse(event.data)); });
    stream.onerror = () => {
      // A stream ends now and then, and is opened again at once.
      clearTimeout(late);
      if (stream.readyState === EventSource.CLOSED) {
        close();
        say("Updates ended: reload the page");
        late = setTimeout(open, 30000);
      } else {
        late = setTimeout(() => say("No updates: the service does not answer"), 10000);
      }
    };
  };
  pause.hidden = false;
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.setAttribute("aria-pressed", String(isPaused));
    if (isPaused) { close(); say("Paused"); } else { say(""); open(); }
  });
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  // What was opened before the next page is left would keep its connection.
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll(true));
  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => drawAll(true), 200); });
  drawAll(false);
  open();
})();
