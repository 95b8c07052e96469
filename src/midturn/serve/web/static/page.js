// What the page does beyond htmx: ages of times, one request for a double click, and whether it is live. Everything
// works without it.
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

  let sent = ""; // Kept here and not on the form: a live update may take it from there meanwhile.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post") return;
    const now = `${form.getAttribute("action")} ${form.elements.question?.value}`;
    if (now === sent) event.preventDefault();
    sent = now;
    setTimeout(() => (sent = sent === now ? "" : sent), 2000);
  });

  const live = document.getElementById("live");
  if (!live) return;
  const show = (state, text, status) => {
    live.dataset.state = state;
    live.textContent = text;
    document.getElementById("logged-out").hidden = status !== 401;
  };
  const why = { 401: "logged out", 404: "it is gone", 429: "too many tabs" };
  document.addEventListener("htmx:sse:after:connection", () => show("on", "live"));
  document.addEventListener("htmx:sse:close", () => show("off", "not live"));
  document.addEventListener("htmx:sse:error", (event) => {
    const status = event.detail && event.detail.status;
    show("off", why[status] || "reconnecting…", status);
  });
})();
