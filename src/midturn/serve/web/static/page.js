// What the page does beyond htmx: ages of times, and whether it is live. Everything works without it.
"use strict";
(() => {
  const units = [["s", 1, 60], ["min", 60, 3600], ["h", 3600, 86400], ["d", 86400, 604800]];
  const ago = (at) => {
    const seconds = Math.max(0, Math.floor((Date.now() - at) / 1000));
    if (seconds < 1) return "now";
    for (const [unit, size, limit] of units) if (seconds < limit) return `${Math.floor(seconds / size)} ${unit} ago`;
    return null;
  };
  const age = () => {
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const text = ago(Date.parse(time.dateTime));
      if (text !== null && time.textContent !== text) time.textContent = text;
    }
  };
  age();
  setInterval(age, 10000);

  const live = document.getElementById("live");
  if (!live) return;
  const show = (state, text) => {
    live.dataset.state = state;
    live.textContent = text;
  };
  document.addEventListener("htmx:sse:after:connection", () => show("on", "live"));
  document.addEventListener("htmx:sse:close", () => show("off", "not live"));
  document.addEventListener("htmx:sse:error", (event) => {
    const status = event.detail && event.detail.status;
    show("off", status === 401 ? "the server was restarted with another token" : "reconnecting…");
  });
})();
