"use strict";
/* Shows changes as they come. A browser that reconnects sends the token of its last event: nothing is missed or shown twice. */

const table = document.getElementById("changes");
const state = document.getElementById("state");
const pause = document.getElementById("pause");
const MOST = 500;

if (table) {
  const rows = table.tBodies[0];
  const waiting = [];
  let isPaused = false;

  const show = (text) => { state.textContent = text; };

  const add = (change) => {
    const link = element("a", { className: "mono id", textContent: change.id });
    link.href = `${table.dataset.document}?id=${encodeURIComponent(change.id)}`;
    const row = element("tr", {}, element("th", { scope: "row" }, link));
    const kind = { insert: "good", remove: "bad", expire: "warn" }[change.kind] || "";
    row.append(
      element("td", {}, element("span", { className: `chip ${kind}`, textContent: change.kind })),
      element("td", { className: "n", textContent: change.version }),
      element("td", { className: "nowrap", textContent: change.time }),
      element("td", { className: "v", textContent: change.body }),
    );
    rows.prepend(row);
    while (rows.rows.length > MOST) rows.deleteRow(-1);
  };

  let last = "";

  const connect = () => {
    const url = new URL(table.dataset.events, location.href);
    if (last) url.searchParams.set("after", last);
    const source = new EventSource(url);
    source.addEventListener("open", () => show("Waiting for changes."));
    source.addEventListener("error", () => {
      show("Not connected. The page connects again by itself.");
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
    });
    source.addEventListener("change", (event) => {
      const change = JSON.parse(event.data);
      last = event.lastEventId;
      if (isPaused) {
        waiting.push(change);
        show(`Paused: ${waiting.length} changes wait.`);
      } else {
        add(change);
      }
    });
    for (const name of ["lost", "problem"]) {
      source.addEventListener(name, (event) => {
        source.close();
        show(JSON.parse(event.data).problem);
      });
    }
  };
  connect();
  pause.addEventListener("click", () => {
    isPaused = !isPaused;
    pause.textContent = isPaused ? "Go on" : "Pause";
    if (!isPaused) {
      waiting.splice(0).forEach(add);
      show("Waiting for changes.");
    }
  });
}
