// What the page does with a script: times in the reader's zone, charts that answer the pointer, and whether it is live.
"use strict";
(() => {
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const ages = [[60, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "days"]];

  function ago(ms) {
    const s = Math.max(0, (Date.now() - ms) / 1000);
    if (s < 5) return "just now";
    const [, unit, word] = ages.find(([most]) => s < most);
    return `${Math.round(s / unit)} ${word} ago`;
  }

  function tellTimes(root) {
    for (const time of root.querySelectorAll("time[data-ms]")) {
      const ms = Number(time.dataset.ms);
      const text = time.dataset.as === "age" ? ago(ms) : exact.format(ms);
      if (time.textContent !== text) time.textContent = text;
      time.title = `${exact.format(ms)} (${new Date(ms).toISOString()})`;
    }
  }

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function marks(at) {
    return { hooks: { draw: [(u) => {
      const { ctx, bbox } = u;
      ctx.save();
      ctx.strokeStyle = colour("--bad");
      ctx.globalAlpha = 0.7;
      ctx.setLineDash([4, 4]);
      for (const ms of at) {
        const x = u.valToPos(ms / 1000, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    }] } };
  }

  function drawCharts(root) {
    if (typeof uPlot === "undefined") return;
    for (const box of root.querySelectorAll(".chart[data-series]")) {
      const [times, lags, at] = JSON.parse(box.dataset.series);
      if (times.length < 2) continue;
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
      box.replaceChildren();
      const plot = new uPlot({
        width: box.clientWidth, height: 220, plugins: [marks(at)], cursor: { y: false },
        scales: { y: { range: (u, low, high) => [0, Math.max(1, high * 1.08)] } },
        axes: [axis, { ...axis, size: 64, values: (u, all) => all.map((v) => v.toLocaleString()) }],
        series: [{}, { label: "lag", stroke: colour("--accent"), width: 2, fill: colour("--accent-bg"),
          value: (u, v) => (v == null ? "" : v.toLocaleString()) }],
      }, [times.map((t) => t / 1000), lags], box);
      box.plot = plot;
    }
  }

  function live(state, text) {
    const sign = document.querySelector(".live");
    if (!sign || sign.dataset.state === state) return;
    sign.dataset.state = state;
    sign.textContent = text;
  }

  // What was opened stays open when fresh figures come in.
  let opened = new Set();
  document.addEventListener("htmx:beforeSwap", (event) => {
    opened = new Set([...event.target.querySelectorAll("details[open][id]")].map((each) => each.id));
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    tellTimes(document);
    drawCharts(document);
  });
  document.addEventListener("htmx:sseOpen", () => live("live", "live"));
  document.addEventListener("htmx:sseError", () => live("lost", "connection lost, trying again"));
  document.addEventListener("htmx:sendError", () => live("lost", "connection lost, trying again"));
  document.addEventListener("change", (event) => {
    if (event.target.matches("form.filter select, form.filter input[type=checkbox]")) event.target.form.requestSubmit();
  });
  addEventListener("resize", () => {
    for (const box of document.querySelectorAll(".chart")) box.plot?.setSize({ width: box.clientWidth, height: 220 });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts(document));
  setInterval(() => tellTimes(document), 5000);
  // Lags move without anybody's leave: who looks gets fresh figures now and then, a page in the background none.
  setInterval(() => {
    const part = document.getElementById("live");
    if (part && !document.hidden && typeof htmx !== "undefined") htmx.trigger(part, "refresh");
  }, 40000);

  function openNamed() {
    const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (named) (named.matches("details") ? named : named.querySelector("details"))?.setAttribute("open", "");
  }
  addEventListener("hashchange", openNamed);
  addEventListener("DOMContentLoaded", () => { tellTimes(document); drawCharts(document); openNamed(); });
})();
