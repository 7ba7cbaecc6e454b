"use strict";
// While a run goes on, the part of the page with data-live (seconds) is fetched anew and put in place.
(() => {
  async function refresh() {
    const old = document.querySelector("[data-live]");
    if (!old) return;
    const isBusy = document.hidden || old.contains(document.activeElement);
    if (!isBusy) {
      const response = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
      if (response && response.ok) {
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        const fresh = page.getElementById(old.id);
        if (!fresh || !fresh.dataset.live) {
          // It has ended: the rest of the page is of before.
          location.reload();
          return;
        }
        old.replaceWith(document.importNode(fresh, true));
        document.dispatchEvent(new Event("elasticqa:refreshed"));
      }
    }
    plan();
  }

  function plan() {
    const part = document.querySelector("[data-live]");
    if (part) setTimeout(refresh, 1000 * Number(part.dataset.live));
  }

  plan();
})();
