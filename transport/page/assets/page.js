"use strict";
// Puts what the server sends in the place of what is shown, unless somebody is
// just using it.
(function () {
  const main = document.getElementById("main");
  const pulse = document.getElementById("pulse");
  if (!main || !main.dataset.live || !window.EventSource) {
    return;
  }
  const source = new EventSource(main.dataset.live);
  source.onmessage = function (event) {
    const held = document.activeElement;
    const used = held && main.contains(held) && held.matches("input, select, button");
    const marked = window.getSelection && String(window.getSelection()) !== "";
    const aimed = main.querySelector("form:hover, a:hover") !== null;
    if (used || marked || aimed) {
      return;
    }
    const link = held && main.contains(held) ? held.getAttribute("href") : null;
    main.innerHTML = event.data;
    if (link) {
      const again = Array.from(main.querySelectorAll("a")).find(function (a) { return a.getAttribute("href") === link; });
      if (again) {
        again.focus();
      }
    }
    pulse.textContent = "Live.";
  };
  source.onerror = function () {
    pulse.textContent = "Not live: the connection is lost. Reload for the present state.";
  };
})();
