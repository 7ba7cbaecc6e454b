"use strict";
// Draws the figure of every element with data-figure when it scrolls near the window, in the colours of the style sheet.
(() => {
  const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
  const NARROW = 520;
  const isDark = window.matchMedia("(prefers-color-scheme: dark)");
  const drawn = new Map();

  function themed({ data, layout }, width) {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const font = { family: style.fontFamily, size: 12.5, color: color("--ink-soft") };
    const card = { bgcolor: color("--card"), bordercolor: color("--line"), font: { ...font, color: color("--ink") } };
    const result = { ...layout, font, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hoverlabel: card };
    for (const key of Object.keys(result).filter((name) => /^[xy]axis\d*$/.test(name))) {
      result[key] = { gridcolor: color("--line"), linecolor: color("--line"), automargin: true, ...result[key] };
    }
    if (width < NARROW && layout.showlegend) {
      // Two legend entries fit in a row: make room for each further row.
      const named = data.filter((trace) => trace.showlegend !== false).length;
      result.height = layout.height + 19 * Math.max(0, Math.ceil(named / 2) - 1);
    }
    result.modebar = { bgcolor: "rgba(0,0,0,0)", color: color("--ink-faint"), activecolor: color("--accent") };
    return result;
  }

  function showNote(element, text) {
    const note = document.createElement("p");
    note.className = "waiting";
    note.textContent = text;
    element.replaceChildren(note);
  }

  async function draw(element) {
    const response = await fetch(element.dataset.figure, { credentials: "same-origin" });
    if (!response.ok) {
      showNote(element, `The chart could not be loaded (${response.status}).`);
      return;
    }
    const figure = await response.json();
    if (figure.data.length === 0) {
      showNote(element, "No data is recorded for this chart.");
      return;
    }
    if (!drawn.has(element)) element.replaceChildren();
    drawn.set(element, figure);
    await Plotly.react(element, figure.data, themed(figure, element.clientWidth), CONFIG);
  }

  const nearWindow = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      nearWindow.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "400px" });

  document.querySelectorAll("[data-figure]").forEach((element) => nearWindow.observe(element));
  isDark.addEventListener("change", () => {
    for (const [element, figure] of drawn) {
      Plotly.react(element, figure.data, themed(figure, element.clientWidth), CONFIG);
    }
  });
  document.addEventListener("elasticqa:refreshed", () => [...drawn.keys()].forEach(draw));
})();
