"use strict";
/* The pages work without this script. It completes filters, copies, keeps a draft from being lost, and shows writes per minute. */
document.documentElement.classList.add("js");

/** Create an element with text, never with HTML. */
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// -- the present tab is seen on a narrow screen

for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
  tab.scrollIntoView({ block: "nearest", inline: "center" });
}

// -- copying

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy).textContent;
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Selected: press Ctrl-C";
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}

// -- menus close by Escape and by a click elsewhere

document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  const menu = document.querySelector("details.menu[open]");
  if (event.key === "Escape" && menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
  const isTyping = event.target.matches("input, textarea, select");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    const filter = document.getElementById("filter");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  }
});

// -- the filter bar

/** Return the text before the caret that a completion replaces, and what completes it: fields, operators or values. */
function typed(text) {
  const string = /"((?:[^"\\]|\\.)*)$/.exec(unquoted(text));
  if (string) {
    const before = text.slice(0, text.length - string[0].length);
    const key = /"([^"]*)"\s*:\s*(?:\[\s*(?:[^\]{]*,\s*)?)?$/.exec(before);
    if (key && !/[{]\s*$/.test(before)) return { part: string[1], kind: "values", key: key[1], quoted: true };
    return { part: string[1], kind: keyKind(before), quoted: true };
  }
  const word = /[\w$.]*$/.exec(text)[0];
  const before = text.slice(0, text.length - word.length);
  if (/[{,]\s*$/.test(before)) return { part: word, kind: keyKind(before), quoted: false };
  const key = /"([^"]*)"\s*:\s*$/.exec(before);
  if (key) return { part: word, kind: "values", key: key[1], quoted: false };
  return null;
}

/** Return the end of a text from its last open quote on; a text without one has none. */
function unquoted(text) {
  let open = -1;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === "\\" && open >= 0) at++;
    else if (text[at] === '"') open = open < 0 ? at : -1;
  }
  return open < 0 ? "" : text.slice(open);
}

/** Return what is a key after a text: an operator within the object of a field, else a field. */
function keyKind(before) {
  let depth = 0;
  for (let at = before.length - 1; at >= 0; at--) {
    if ("}]".includes(before[at])) depth++;
    else if (before[at] === "[" && depth > 0) depth--;
    else if (before[at] === "{") {
      if (depth > 0) { depth--; continue; }
      const key = /"([^"]*)"\s*:\s*$/.exec(before.slice(0, at));
      return key && (!key[1].startsWith("$") || key[1] === "$not") ? "operators" : "fields";
    }
  }
  return "fields";
}

class Completion {
  constructor(entry, url) {
    Object.assign(this, { entry, url, options: [], chosen: -1, known: null, isTyped: false });
    this.list = element("ul", { id: "completions", className: "list", role: "listbox", hidden: true });
    this.list.setAttribute("aria-label", "Completions");
    entry.after(this.list);
    for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-controls": "completions", "aria-expanded": "false" })) {
      entry.setAttribute(name, value);
    }
    entry.addEventListener("focus", () => this.load());
    entry.addEventListener("input", () => { this.isTyped = true; this.show(); });
    entry.addEventListener("click", () => this.hide());
    entry.addEventListener("blur", () => this.hide());
    entry.addEventListener("keydown", (event) => this.press(event));
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault();
      const index = [...this.list.children].indexOf(event.target.closest("li"));
      if (index >= 0) this.take(index);
    });
  }

  async load() {
    if (this.known) return;
    this.known = { fields: [], operators: [], top: [] };
    try {
      const answer = await fetch(this.url, { headers: { Accept: "application/json" } });
      if (answer.ok) this.known = await answer.json();
    } catch { /* the filter works without completions */ }
    if (this.isTyped) this.show();
  }

  /** Return pairs of a completion and what is shown beside it. */
  found(at) {
    const { fields, operators, top } = this.known;
    if (at.kind === "operators") return operators.map((name) => [name, ""]);
    if (at.kind === "values") {
      const field = fields.find((each) => each.path === at.key);
      return (field ? field.values : []).map((value) => [value, ""]);
    }
    return [...fields.map((each) => [each.path, each.types.join(", ")]), ...top.map((name) => [name, ""])];
  }

  show() {
    const { entry } = this;
    const at = this.known && entry.selectionStart === entry.selectionEnd ? typed(entry.value.slice(0, entry.selectionStart)) : null;
    if (!at) return this.hide();
    const part = at.part.toLowerCase();
    const bare = (text) => (at.kind === "values" && text.startsWith('"') ? text.slice(1, -1) : text).toLowerCase();
    this.options = this.found(at).filter(([text]) => bare(text).includes(part) && (!at.quoted || at.kind !== "values" || text.startsWith('"')))
      .sort(([one], [other]) => bare(other).startsWith(part) - bare(one).startsWith(part)).slice(0, 12);
    this.at = at;
    this.chosen = -1;
    this.list.replaceChildren(...this.options.map(([text, types], index) => {
      const made = element("li", { id: `completion-${index}`, role: "option" }, element("span", { textContent: text }), element("small", { textContent: types }));
      made.setAttribute("aria-selected", "false");
      return made;
    }));
    this.list.hidden = this.options.length === 0;
    entry.setAttribute("aria-expanded", String(!this.list.hidden));
  }

  hide() {
    this.isTyped = false;
    this.list.hidden = true;
    this.entry.setAttribute("aria-expanded", "false");
    this.entry.removeAttribute("aria-activedescendant");
  }

  press(event) {
    if (!this.list.hidden) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        this.choose((this.chosen + step + this.options.length) % this.options.length);
        return;
      }
      if (event.key === "Escape") {
        event.stopPropagation();
        this.hide();
        return;
      }
      if ((event.key === "Enter" || event.key === "Tab") && this.chosen >= 0) {
        event.preventDefault();
        this.take(this.chosen);
        return;
      }
    }
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.entry.form.requestSubmit();
    }
  }

  choose(index) {
    this.chosen = index;
    [...this.list.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === index)));
    this.list.children[index].scrollIntoView({ block: "nearest" });
    this.entry.setAttribute("aria-activedescendant", `completion-${index}`);
  }

  take(index) {
    const { entry, at } = this;
    const [text] = this.options[index];
    const caret = entry.selectionStart;
    const start = caret - at.part.length - (at.quoted ? 1 : 0);
    const rest = entry.value.slice(caret).replace(at.quoted ? /^"/ : "", "");
    const isValue = at.kind === "values";
    const made = isValue ? text : JSON.stringify(text) + (/^\s*:/.test(rest) ? "" : ": ");
    entry.setRangeText(made + rest, start, entry.value.length, "end");
    entry.setSelectionRange(start + made.length, start + made.length);
    this.hide();
    grow(entry);
  }
}

/** Make an entry as high as its text. */
function grow(entry) {
  entry.rows = Math.min(12, entry.value.split("\n").length);
}

const filter = document.getElementById("filter");
if (filter) {
  grow(filter);
  filter.addEventListener("input", () => grow(filter));
  new Completion(filter, filter.form.dataset.fields);
  // the URL has only what is asked for
  filter.form.addEventListener("formdata", (event) => {
    for (const [name, value] of [...event.formData]) {
      if (value === "" || (name === "limit" && value === "50")) event.formData.delete(name);
    }
  });
}

// -- an edited body is not lost by leaving the page

const body = document.querySelector("textarea#body");
if (body) {
  let isSent = false;
  body.form.addEventListener("submit", () => { isSent = true; });
  addEventListener("beforeunload", (event) => {
    if (!isSent && body.value !== body.defaultValue) event.preventDefault();
  });
}

// -- writes per minute, while the page is looked at

const watched = document.querySelector("[data-positions]");
if (watched) {
  const started = Date.now();
  let first = null;
  const poll = async () => {
    if (document.hidden) return;
    const answer = await fetch(watched.dataset.positions, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!answer || !answer.ok) return;
    const positions = await answer.json();
    first ??= positions;
    const minutes = (Date.now() - started) / 60000;
    for (const cell of watched.querySelectorAll("[data-position]")) {
      const name = cell.dataset.position;
      const written = (positions[name] ?? 0) - (first[name] ?? positions[name] ?? 0);
      cell.textContent = written > 0 ? Math.max(1, Math.round(written / minutes)).toLocaleString("en") : "0";
    }
  };
  poll();
  setInterval(poll, 5000);
}

// -- times of expiry run down

const expiring = document.querySelectorAll("[data-left]");
if (expiring.length) {
  const opened = Date.now();
  setInterval(() => {
    for (const each of expiring) each.textContent = duration(each.dataset.left - Math.round((Date.now() - opened) / 1000));
  }, 1000);
}

/** Return a number of seconds with its two largest units. */
function duration(seconds) {
  let rest = Math.max(0, seconds);
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}
