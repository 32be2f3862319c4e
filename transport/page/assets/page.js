"use strict";
// Puts what the server sends in the place of what is shown, and touches only
// what differs: what is focused, selected or scrolled stays so.
(function () {
  const main = document.getElementById("main");
  const pulse = document.getElementById("pulse");
  if (!main || !main.dataset.live || !window.EventSource) {
    return;
  }
  const held = document.createElement("template");

  function say(text) {
    if (pulse.textContent !== text) { // who listens to the page is told once
      pulse.textContent = text;
    }
  }

  function key(node) {
    return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
  }

  function alike(a, b) {
    return a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
  }

  function patch(old, fresh) {
    if (old.isEqualNode(fresh)) {
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.data = fresh.data;
      return;
    }
    if (old.nodeName === "FORM" && old.contains(document.activeElement)) {
      return;
    }
    for (const a of Array.from(old.attributes)) {
      if (!fresh.hasAttribute(a.name)) {
        old.removeAttribute(a.name);
      }
    }
    for (const a of Array.from(fresh.attributes)) {
      if (old.getAttribute(a.name) !== a.value) {
        old.setAttribute(a.name, a.value);
      }
    }
    const known = new Map();
    for (const child of old.childNodes) {
      if (key(child) !== null) {
        known.set(key(child), child);
      }
    }
    const wanted = new Set(Array.from(fresh.childNodes, key));
    let at = old.firstChild;
    for (const child of Array.from(fresh.childNodes)) {
      while (at && key(at) !== null && !wanted.has(key(at))) { // it is gone
        const next = at.nextSibling;
        at.remove();
        at = next;
      }
      if (at && alike(at, child)) {
        const next = at.nextSibling;
        patch(at, child);
        at = next;
      } else if (key(child) !== null && known.has(key(child))) {
        const moved = known.get(key(child));
        old.insertBefore(moved, at);
        patch(moved, child);
      } else {
        old.insertBefore(child, at);
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  // A view comes every second. Where none does any more, as behind a proxy that
  // keeps the connection of a server that is gone, or that refuses a new one, it is
  // asked for again.
  const patience = 5000;

  function watch() {
    const source = new EventSource(main.dataset.live);
    let late;
    function wait() {
      clearTimeout(late);
      late = setTimeout(function () {
        source.close();
        lost();
        watch();
      }, patience);
    }
    source.onmessage = function (event) {
      wait();
      if (main.querySelector("tbody a:hover, button:hover") !== null) {
        say("Held while the pointer is on a link or button.");
        return;
      }
      held.innerHTML = event.data;
      const fresh = main.cloneNode(false);
      fresh.append(held.content);
      const focused = document.activeElement;
      patch(main, fresh);
      if (main.contains(focused)) { // a row that moves loses the focus
        focused.focus({ preventScroll: true });
      }
      say("Live.");
    };
    source.onerror = lost;
    wait();
  }

  function lost() {
    say("Not live: nothing comes from the server. It is asked again.");
  }

  watch();
})();
