// What the page does with a script: ages of times, charts that answer the pointer, and whether it is live.
"use strict";
(() => {
  // As the server writes times, and every tool of this node: UTC, 24 hours.
  const exact = { format: (ms) => `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC` };
  const ages = [[60, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "days"]];

  // By the node's clock, which need not be the reader's; what it took down before it was set back lies ahead.
  let ahead = 0;
  function readClock() {
    ahead = Date.now() - Number(document.getElementById("conditions")?.dataset.now ?? Date.now());
  }

  function ago(ms) {
    const s = (Date.now() - ahead - ms) / 1000;
    if (s < -5) return exact.format(ms);
    if (s < 5) return "just now";
    const [, unit, word] = ages.find(([most]) => s < most);
    return `${Math.round(s / unit)} ${word} ago`;
  }

  function tellTimes(root) {
    for (const time of root.querySelectorAll("time[data-ms]")) {
      const ms = Number(time.dataset.ms);
      const text = time.dataset.as === "age" ? ago(ms) : exact.format(ms);
      if (time.textContent !== text) time.textContent = text;
      time.title = exact.format(ms);
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

  // Seconds where little is shown, days where much: parts of 2026-11-28 14:02:05.
  const axisParts = [[1800, 11, 19], [172800, 11, 16], [Infinity, 0, 10]];
  function axisTime(u, all) {
    const shown = u.scales.x.max - u.scales.x.min, [, from, to] = axisParts.find(([most]) => shown < most);
    return all.map((s) => exact.format(s * 1000).slice(from, to));
  }

  // Without a pointer the legend tells the last figures: it is never empty.
  function tellLast(u) {
    if (u.cursor.idx == null) u.setLegend({ idx: u.data[0].length - 1 }, false);
  }

  // There are no fifths of a record.
  const whole = [...Array(15).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power));

  function drawCharts(root) {
    if (typeof uPlot === "undefined") return;
    for (const box of root.querySelectorAll(".chart[data-series]")) {
      const [times, lags, at] = JSON.parse(box.dataset.series);
      if (times.length < 2) continue;
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
      box.replaceChildren();
      const plot = new uPlot({
        width: box.clientWidth, height: 220, plugins: [marks(at)], cursor: { y: false },
        tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "Etc/UTC"), hooks: { ready: [tellLast], setCursor: [tellLast] },
        scales: { y: { range: (u, low, high) => [0, Math.max(1, high * 1.08)] } },
        axes: [{ ...axis, space: 90, values: axisTime }, { ...axis, size: 64, incrs: whole, values: (u, all) => all.map((v) => v.toLocaleString()) }],
        series: [{ label: "time", value: (u, s) => (s == null ? "" : exact.format(s * 1000)) }, { label: "lag", stroke: colour("--accent"), width: 2, fill: colour("--accent-bg"),
          value: (u, v) => (v == null ? "" : v.toLocaleString()) }],
      }, [times.map((t) => t / 1000), lags], box);
      box.plot = plot;
    }
  }

  function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
    if (element.hidden === Boolean(text)) element.hidden = !text;
  }

  // Whether the node answers, and whether it tells this page of changes as they happen.
  const SILENT_MS = 10000, AGAIN_MS = 5000;
  const events = document.querySelector("main").dataset.events;
  let source = null, mark = "", heard = performance.now(), heardAt = Date.now(), asked = heard, refused = "";

  function hear() {
    heard = performance.now();
    heardAt = Date.now();
    tellState();
  }

  function tellState() {
    if (!events) return;
    const sign = document.querySelector(".live"), silent = performance.now() - heard > SILENT_MS;
    const live = !silent && source?.readyState === EventSource.OPEN;
    sign.dataset.state = live ? "live" : "lost";
    say(sign, live ? "live" : silent ? "no answer, trying again" : "connection lost, trying again");
    say(document.getElementById("lost"), silent
      ? `The node has not answered since ${exact.format(heardAt)}. What is shown is from then; this page goes on asking.`
      : refused && `The node answers, but not with this page: ${refused} What is shown is the last that it told.`);
  }

  function refresh(why) {
    const part = document.getElementById("live");
    asked = performance.now();
    if (part && typeof htmx !== "undefined") htmx.trigger(part, why);
  }

  function follow() {
    if (!events || source || document.hidden) return;
    const address = new URL(events, location);
    if (mark) address.searchParams.set("since", mark);
    const mine = source = new EventSource(address);
    mine.onopen = hear;
    mine.addEventListener("alive", hear);
    mine.addEventListener("changed", (event) => {
      mark = event.lastEventId;
      hear();
      refresh("changed");
    });
    mine.onerror = () => {
      if (mine === source && mine.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(follow, AGAIN_MS);
      }
      tellState();
    };
  }

  // A browser has six connections to a host: a page that nobody looks at keeps none of them.
  function leave() {
    source?.close();
    source = null;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return leave();
    heard = performance.now();
    follow();
    refresh("refresh");
  });

  function watch() {
    if (document.hidden) return;
    tellState();
    const now = performance.now();
    if (now - heard < SILENT_MS || now - asked < SILENT_MS) return;
    leave();  // The other end may be gone without a word, as after a change of networks.
    follow();
    refresh("refresh");
  }

  // What was opened stays open when fresh figures come in, and where one was one stays.
  let opened = new Set(), focused, scrolled = 0;
  document.addEventListener("htmx:beforeSwap", (event) => {
    opened = new Set([...event.target.querySelectorAll("details[open][id]")].map((each) => each.id));
    focused = document.activeElement?.matches("summary") && document.activeElement.parentElement.id;
    scrolled = document.querySelector(".bars")?.scrollTop ?? 0;
  });
  document.addEventListener("htmx:afterSwap", () => {
    refused = "";
    readClock();
    tellState();
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.querySelector("summary").focus({ preventScroll: true });
    document.querySelector(".bars")?.scrollTo(0, scrolled);
    tellTimes(document);
    drawCharts(document);
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.xhr.status) hear();
  });
  document.addEventListener("htmx:responseError", (event) => {
    const { status, responseText } = event.detail.xhr;
    const told = new DOMParser().parseFromString(responseText, "text/html").querySelector(".refusal");
    refused = `${told?.textContent || `status ${status}`}.`;
    tellState();
    if (status >= 500) setTimeout(refresh, AGAIN_MS, "refresh");
  });
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
    if (!document.hidden) refresh("refresh");
  }, 60000);
  setInterval(watch, 1000);

  function openNamed() {
    const named = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (named) (named.matches("details") ? named : named.querySelector("details"))?.setAttribute("open", "");
  }
  addEventListener("hashchange", openNamed);
  addEventListener("DOMContentLoaded", () => {
    readClock();
    tellTimes(document);
    drawCharts(document);
    openNamed();
    follow();
    const again = document.querySelector("[data-again]");
    if (again) setTimeout(() => location.reload(), 1000 * Number(again.dataset.again));
  });
})();
