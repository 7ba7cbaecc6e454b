"use strict";
// While a run is running, replaces the part of the page with data-live (seconds between refreshes).
(() => {
  async function refresh(old) {
    const isBusy = document.hidden || old.contains(document.activeElement);
    if (!isBusy) {
      const response = await fetch(location.href, { credentials: "same-origin" }).catch(() => null);
      if (response && response.ok) {
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        const fresh = page.getElementById(old.id);
        if (!fresh || !fresh.dataset.live) {
          // The run has ended: the rest of the page is outdated too.
          location.reload();
          return;
        }
        old.replaceWith(document.importNode(fresh, true));
        document.dispatchEvent(new Event("elasticqa:refreshed"));
      }
    }
    schedule();
  }

  function schedule() {
    const part = document.querySelector("[data-live]");
    if (part) setTimeout(refresh, 1000 * Number(part.dataset.live), part);
  }

  schedule();
})();
