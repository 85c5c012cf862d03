"use strict";
// Steps through documents, searches them, and lays out labels. Reads and writes text, never HTML.
(() => {
  const root = document.documentElement, body = document.body;
  const articles = [...document.querySelectorAll("article")];
  const links = [...document.querySelectorAll("nav a")];
  const find = document.getElementById("find"), found = document.getElementById("found");
  const buttons = [...document.querySelectorAll("button[data-show]")];
  const spanNames = (body.dataset.spans || "").split(" ");
  let current = 0, matches = [], at = -1;
  root.classList.add("js");

  function show(index, focus = true, remember = true) {
    if (!articles.length) return;
    current = Math.max(0, Math.min(articles.length - 1, index));
    articles.forEach((article, i) => article.classList.toggle("current", i === current));
    links.forEach((link, i) => i === current ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current"));
    if (remember) links[current].scrollIntoView({ block: "nearest", inline: "nearest" });
    if (body.classList.contains("labels")) layLabels(articles[current]);
    if (asked && !articles[current].contains(asked)) ask(null);
    if (focus) { articles[current].focus({ preventScroll: true }); window.scrollTo(0, 0); }
    if (remember && location.hash !== "#d" + (current + 1)) history.replaceState(null, "", "#d" + (current + 1));
  }

  function toggle(name) {
    const on = body.classList.toggle(name);
    buttons.filter((b) => b.dataset.show === name).forEach((b) => b.setAttribute("aria-pressed", String(on)));
    if (name === "labels") articles.forEach((article) => {
      article.querySelectorAll("section").forEach((section) => { section.hidden = on; });
      article.querySelector(".labels").hidden = !on;
    });
    if (name === "labels" && on && articles.length) layLabels(articles[current]);
    if (name === "teacher" && !on && asked) ask(null);
    search(false);
  }

  const plain = (text) => text.replace(/\n/g, "↵").replace(/ /g, "␣");
  const shown = (token) => (token.classList.contains("p") ? token.dataset.b + " " : "") + plain(token.textContent);

  function cell(row, text, kind) {
    const td = row.insertCell();
    td.textContent = text;
    if (kind) td.className = kind;
    return td;
  }

  // What a teacher expected at a token: its own log-probability, the top k, and what they leave.
  const expected = document.getElementById("expected"), texts = new Map();
  document.querySelectorAll("#texts li").forEach((item) => texts.set(item.dataset.i, item.textContent));
  const percent = (logprob) => (100 * Math.exp(logprob)).toPrecision(3) * 1 + " %";
  let asked = null;

  function ask(token) {
    if (asked) asked.classList.remove("asked");
    asked = token;
    expected.hidden = !token;
    if (!token) return;
    token.classList.add("asked");
    const top = token.dataset.t.split(" ").map((entry) => entry.split(":"));
    const rank = top.findIndex(([id]) => id === token.dataset.i), own = Number(token.dataset.o);
    const about = document.createElement("p"), table = document.createElement("table"), head = table.createTHead().insertRow();
    about.textContent = shown(token) + " at position " + token.dataset.n + ": log-prob " + own.toFixed(3) + ", " + percent(own) +
      ", " + (rank < 0 ? "not among the first " + top.length : "rank " + (rank + 1));
    for (const [name, kind] of [["", "n"], ["token", ""], ["id", "n"], ["log-prob", "n"], ["probability", "n"]]) {
      const th = document.createElement("th");
      th.scope = "col"; th.textContent = name; th.className = kind;
      head.append(th);
    }
    const lines = table.createTBody();
    const line = (at, text, id, logprob, kind) => {
      const row = lines.insertRow();
      row.className = kind;
      [[at, "n"], [text, "token"], [id, "n"], [Number(logprob).toFixed(3), "n"], [percent(logprob), "n"]].forEach(([value, name]) => cell(row, value, name));
    };
    top.forEach(([id, logprob], at) => line(at + 1, plain(texts.get(id)), id, logprob, at === rank ? "own" : ""));
    line("", "all others", "", token.dataset.r, "others");
    expected.replaceChildren(about, table);
    const box = token.getBoundingClientRect();
    if (box.top < 80 || box.bottom > expected.getBoundingClientRect().top && innerWidth < 900) window.scrollBy(0, box.top - innerHeight / 4);
  }

  function askBeside(step) {
    const tokens = [...asked.closest("article").querySelectorAll("i[data-o]")];
    ask(tokens[Math.max(0, Math.min(tokens.length - 1, tokens.indexOf(asked) + step))]);
  }

  // One line a position: the token, what it learns, and the two values on disk that say so.
  function layLabels(article) {
    const box = article.querySelector(".labels");
    if (box.firstChild) return;
    const about = document.createElement("p");
    about.className = "about quiet";
    about.textContent = "Each position learns to predict the next token. Loss mask and span are shown as they are on disk: they describe that label, one place ahead of the token.";
    const table = document.createElement("table"), head = table.createTHead().insertRow();
    for (const [name, kind] of [["position", "n"], ["token", ""], ["label it learns", ""], ["lossmask", "n"], ["span", ""], ...(expected ? [["log-prob", "n"]] : [])]) {
      const th = document.createElement("th");
      th.scope = "col"; th.textContent = name; th.className = kind;
      head.append(th);
    }
    const lines = table.createTBody(), tokens = [...article.querySelectorAll("section i")];
    tokens.forEach((token, index) => {
      const position = Number(token.dataset.n), next = tokens[index + 1], [mask, span] = token.dataset.k.split(",");
      const learns = next && Number(next.dataset.n) === position + 1;
      const row = lines.insertRow();
      row.className = mask === "1" ? "t" + span : "t0";
      cell(row, position, "n");
      cell(row, shown(token), "token");
      cell(row, learns ? shown(next) : next ? "… (not shown)" : "–", "label");
      cell(row, mask, "n");
      cell(row, span + " " + (spanNames[span] || "?"), "span");
      if (expected) cell(row, learns && next.dataset.o || "", "n");
    });
    box.append(about, table);
  }

  // Search over whole messages: a word may run over many tokens, so text is joined first and mapped back to its nodes.
  function rangesIn(article, wanted) {
    const ranges = [];
    for (const section of article.querySelectorAll("section .header, section .text, header h2, header .facts")) {
      const walker = document.createTreeWalker(section, NodeFilter.SHOW_TEXT), nodes = [], starts = [];
      let text = "";
      while (walker.nextNode()) { nodes.push(walker.currentNode); starts.push(text.length); text += walker.currentNode.data; }
      const folded = text.toLowerCase();
      if (folded.length !== text.length) continue;  // a few letters change length when folded; their offsets would be wrong
      for (let i = folded.indexOf(wanted); i >= 0; i = folded.indexOf(wanted, i + wanted.length)) {
        const range = document.createRange(), place = (offset, end) => {
          let low = 0, high = nodes.length - 1;
          while (low < high) { const mid = (low + high + 1) >> 1; if (starts[mid] < offset + (end ? 0 : 1)) low = mid; else high = mid - 1; }
          return [nodes[low], offset - starts[low]];
        };
        range.setStart(...place(i, false));
        range.setEnd(...place(i + wanted.length, true));
        ranges.push(range);
      }
    }
    return ranges;
  }

  function search(jump) {
    const wanted = find.value.toLowerCase();
    matches = []; at = -1;
    if (wanted) articles.forEach((article, index) => rangesIn(article, wanted).forEach((range) => matches.push({ index, range })));
    const holding = new Set(matches.map((match) => match.index));
    links.forEach((link, index) => { link.parentElement.hidden = Boolean(wanted) && !holding.has(index); });
    found.value = !wanted ? "" : matches.length ? matches.length + " in " + holding.size : "nothing";
    if (window.CSS && CSS.highlights) {
      CSS.highlights.set("found", new Highlight(...matches.map((match) => match.range)));
      CSS.highlights.delete("here");
    }
    if (jump && matches.length) {
      const first = matches.findIndex((match) => match.index >= current);
      step(first < 0 ? 0 : first);
    }
  }

  function step(to) {
    if (!matches.length) return;
    at = (to + matches.length) % matches.length;
    const match = matches[at];
    if (match.index !== current) show(match.index, false);
    found.value = (at + 1) + " of " + matches.length;
    if (window.CSS && CSS.highlights) CSS.highlights.set("here", new Highlight(match.range));
    const box = match.range.getBoundingClientRect();
    if (box.top < 80 || box.bottom > innerHeight - 20) window.scrollBy(0, box.top - innerHeight / 3);
  }

  find.addEventListener("input", () => { if (body.classList.contains("labels")) toggle("labels"); search(true); });
  document.querySelector(".find").addEventListener("submit", (event) => event.preventDefault());
  find.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); step(event.shiftKey ? at - 1 : at + 1); }
    if (event.key === "Escape") { find.value = ""; search(false); find.blur(); }
  });
  buttons.forEach((button) => button.addEventListener("click", () => toggle(button.dataset.show)));
  links.forEach((link, index) => link.addEventListener("click", (event) => { event.preventDefault(); show(index); }));
  const among = () => matches.length ? [...new Set(matches.map((match) => match.index))] : articles.map((_, index) => index);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === find) return;
    if (event.key === "j") { const next = among().find((index) => index > current); if (next !== undefined) show(next); }
    else if (event.key === "k") { const before = among().reverse().find((index) => index < current); if (before !== undefined) show(before); }
    else if (event.key === "/") { event.preventDefault(); find.focus(); find.select(); }
    else if (event.key === "t") toggle("tokens");
    else if (event.key === "i") toggle("ids");
    else if (event.key === "l") toggle("labels");
    else if (event.key === "p" && expected) toggle("teacher");
    else if (event.key === "Escape" && asked) ask(null);
    else if (event.key === "ArrowRight" && asked) { event.preventDefault(); askBeside(1); }
    else if (event.key === "ArrowLeft" && asked) { event.preventDefault(); askBeside(-1); }
  });
  if (expected) document.querySelector("main").addEventListener("click", (event) => {
    const token = event.target.closest("section i[data-o]");
    if (token && body.classList.contains("teacher")) ask(token === asked ? null : token);
  });
  window.addEventListener("hashchange", () => show(Number(location.hash.slice(2)) - 1 || 0));
  for (const name of ["tokens", "ids", "labels", "teacher"]) if (body.dataset[name] === "1") toggle(name);
  show(Number(location.hash.slice(2)) - 1 || 0, false, false);
})();
