// Relative times, the state of the live stream, copying, and keys. Pages work without it.
(() => {
  "use strict";
  const body = document.body, root = body.dataset.root;
  const ahead = body.dataset.now ? Date.parse(body.dataset.now) - Date.now() : 0; // the store's clock may be ahead
  const said = document.getElementById("said"), dot = document.getElementById("live-state");

  // --- relative times, in the words of core/durations.py: span ---
  const two = (n, per, large, small) => Math.floor(n / per) + large + (n % per ? (n % per) + small : "");
  const span = ms => {
    const s = Math.round(ms / 1000), m = Math.round(ms / 60000), h = Math.round(ms / 3600000);
    return s < 60 ? s + "s" : s < 600 ? two(s, 60, "m", "s") : m < 120 ? m + "m" : h < 100 ? h + "h" : two(h, 24, "d", "h");
  };
  const tick = () => {
    for (const each of document.querySelectorAll("time[datetime]")) {
      if (each.dataset.fixed !== undefined) continue;
      const ms = Date.now() + ahead - Date.parse(each.dateTime);
      const near = each.dataset.since !== undefined ? span(Math.max(0, ms)) : Math.abs(ms) < 1000 ? "just now" : ms >= 0 ? span(ms) + " ago" : "in " + span(-ms);
      const text = each.dataset.shown === undefined ? near : local(each.dateTime);
      if (each.textContent !== text) each.textContent = text;
      each.title = local(each.dateTime);
    }
  };
  // The instant in the zone of the viewer. A phone and a keyboard cannot read a title, so a tap shows it as text.
  const zoned = new Intl.DateTimeFormat("sv", {dateStyle: "short", timeStyle: "medium"});
  const zone = new Intl.DateTimeFormat("en", {timeZoneName: "short"});
  const local = at => {
    const when = new Date(at);
    return zoned.format(when) + " " + zone.formatToParts(when).find(each => each.type === "timeZoneName").value;
  };
  document.addEventListener("click", event => {
    const time = event.target.closest("time[datetime]");
    if (!time || time.dataset.fixed !== undefined || time.closest("a, button, summary")) return;
    time.toggleAttribute("data-shown");
    tick();
  });
  setInterval(tick, 10000);
  tick();

  // --- rows of links that scroll sideways begin at the current page ---
  for (const each of document.querySelectorAll(":is(.top nav, .tabs) [aria-current]")) {
    const row = each.parentElement;
    row.scrollLeft = each.offsetLeft - row.offsetLeft - (row.clientWidth - each.offsetWidth) / 2;
  }

  // --- one polite sentence at a time, at most one in five seconds ---
  let waiting = "", saying = 0;
  const say = text => {
    waiting = text;
    if (saying) return;
    said.textContent = waiting;
    saying = setTimeout(() => { saying = 0; if (said.textContent !== waiting) say(waiting); }, 5000);
  };

  // --- the live stream ---
  const show = (state, text) => {
    if (!dot || dot.dataset.state === state) return;
    dot.dataset.state = state;
    dot.textContent = text;
    if (state !== "connecting") say(text);
  };
  const clock = at => new Date(at ?? Date.now()).toTimeString().slice(0, 8);
  let connected = false; // the stream, because a refreshed region alone does not make a page live
  let heard = Date.now(), fresh = false; // the last frame: the service sends one each 15 s, so silence is no good news
  const SILENT_MS = 20000;
  const unavailable = () => show("unavailable", "store unavailable since " + clock());
  const signedOut = () => {
    show("signed-out", "signed out: reload the page");
    document.getElementById("live")?.remove(); // else the stream would ask again for ever, and so would regions
  };
  document.addEventListener("htmx:before:request", event => {
    if (dot?.dataset.state === "signed-out") event.preventDefault();
  });
  document.addEventListener("htmx:sse:before:connection", () => { connected = false; });
  document.addEventListener("htmx:sse:after:connection", () => { connected = fresh = true; heard = Date.now(); });
  document.addEventListener("htmx:sse:before:message", () => {
    heard = Date.now();
    if (connected && (fresh || dot?.dataset.state === "behind")) show("live", "live");
    fresh = false;
  });
  document.addEventListener("visibilitychange", () => { heard = Date.now(); }); // a hidden page has no stream
  setInterval(() => {
    const live = document.getElementById("live"), state = dot?.dataset.state;
    if (!live || document.hidden || state === "ended" || Date.now() - heard < SILENT_MS) return;
    if (state === "live" || state === "connecting") show("behind", "behind since " + clock(heard));
    heard = Date.now();
    const stream = live._htmx?.sse;
    if (stream) stream.reader?.cancel(); // it connects again
    else htmx.ajax("GET", live.getAttribute("hx-sse:connect"), {source: live}); // it was refused at first
  }, 1000);
  document.addEventListener("htmx:sse:error", event => {
    connected = false;
    if (event.detail.status === 401) signedOut();
    else if (event.detail.status === 503) unavailable();
    else if (dot?.dataset.state !== "unavailable") show("behind", "behind since " + clock());
  });
  document.addEventListener("htmx:sse:close", event => {
    if (event.detail.reason === "message") show("ended", "ended");
  });
  document.addEventListener("htmx:after:request", event => {
    const status = event.detail.ctx?.response?.status;
    if (status === 401) signedOut();
    else if (status === 503) unavailable();
    else if (status < 400 && connected && dot?.dataset.state === "unavailable") show("live", "live");
  });
  document.addEventListener("htmx:after:swap", tick);

  // --- the number of ticked runs on the buttons that act on them ---
  const ticked = () => {
    for (const each of document.querySelectorAll("[data-ticked]")) each.textContent = document.querySelectorAll("#many .pick input:checked").length || "";
  };
  for (const kind of ["change", "pageshow", "htmx:after:swap"]) addEventListener(kind, ticked);

  // --- the story of a run: clocks in the zone of the viewer, cards beside it, words that a run streams ---
  const clocks = () => {
    const format = new Intl.DateTimeFormat("en-GB", {day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit"});
    for (const each of document.querySelectorAll("time[data-clock]")) each.textContent = format.format(new Date(each.dateTime)).replace(",", "");
    for (const each of document.querySelectorAll("[data-zone]")) each.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
  };
  clocks();
  document.addEventListener("htmx:after:swap", clocks);
  const panel = document.getElementById("panel");
  let opened = "", soon = 0, from = null;
  const head = document.querySelector(".runhead"); // the panel begins below it
  if (head && panel) new ResizeObserver(() => {
    const height = getComputedStyle(head).position === "sticky" ? head.offsetHeight : 0;
    document.documentElement.style.setProperty("--runhead", height + "px");
  }).observe(head);
  const mark = () => {
    for (const each of document.querySelectorAll("[data-chosen]")) each.removeAttribute("data-chosen");
    for (const each of opened ? document.querySelectorAll("a[data-card]") : [])
      if (each.getAttribute("href") === opened) (each.closest("tr, li") ?? each).setAttribute("data-chosen", "");
  };
  const query = link => link.getAttribute("href").split("?")[1];
  const place = text => history.replaceState(history.state, "", location.pathname + location.search + (text && "#" + text));
  const close = () => {
    panel.replaceChildren();
    opened = "";
    mark();
    place("");
    if (from?.isConnected) from.focus({preventScroll: true});
  };
  const closer = () => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet close";
    button.textContent = "Close";
    button.addEventListener("click", close);
    panel.prepend(button);
  };
  const card = (link, focus) => {
    if (!panel || !link) return;
    const address = link.getAttribute("href"), show = () => { if (focus) panel.focus({preventScroll: true}); };
    if (address !== opened) htmx.ajax("GET", address + "&region=tab", {source: panel, target: panel, swap: "innerHTML"}).then(() => { closer(); show(); });
    else show();
    [opened, from] = [address, link];
    mark();
    if (focus) place(query(link));
  };
  if (location.hash.startsWith("#step=")) card([...document.querySelectorAll("a[data-card]")].find(each => "#" + query(each) === location.hash), true);
  document.addEventListener("htmx:after:swap", mark);
  panel?.addEventListener("keydown", event => { if (event.key === "Escape") close(); });
  document.addEventListener("click", event => {
    const link = event.target.closest("a[data-card]");
    if (!panel || !link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    card(link, true);
  });
  for (const kind of ["mouseover", "focusin"]) document.addEventListener(kind, event => {
    const link = event.target.closest("svg a[data-card]");
    clearTimeout(soon);
    if (link) soon = setTimeout(() => card(link, false), 150);
  });
  // --- the graph of a run: the current node in the middle of its frame ---
  for (const here of document.querySelectorAll(".graph #here")) {
    const frame = here.closest(".graph"), a = frame.getBoundingClientRect(), b = here.getBoundingClientRect();
    const shown = Math.min(a.bottom, innerHeight); // of a frame that the window cuts, the part in view
    frame.scrollBy(b.left + b.width / 2 - a.left - a.width / 2, b.top + b.height / 2 - (a.top + shown) / 2);
  }
  let speaker = "", spoken = "", steps = 0;
  const countSteps = () => document.querySelectorAll("#story > li").length;
  const speak = () => {
    const box = document.getElementById("streamed");
    if (!box || !spoken) return;
    box.textContent = spoken;
    box.hidden = false;
  };
  document.addEventListener("htmx:sse:before:message", event => {
    if (event.detail.message?.event !== "delta" || !document.getElementById("streamed")) return;
    const delta = JSON.parse(event.detail.message.data), who = [delta.visit, delta.key, delta.epoch, delta.attempt].join();
    if (who !== speaker) { spoken = ""; speaker = who; }
    const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
    spoken += delta.text.replace(hidden, c => "[U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "]");
    steps = countSteps();
    speak();
  });
  document.addEventListener("htmx:after:swap", () => { if (countSteps() === steps) speak(); }); // a new step may have them

  // --- copying ---
  document.addEventListener("click", event => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = button.dataset.copy || button.previousElementSibling.textContent;
    navigator.clipboard?.writeText(text).then(() => say("copied"));
  });

  // --- approvals: the viewer's zone, the count of the tab, the call that follows a decision ---
  const zoneName = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (root && zoneName) document.cookie = "outlast-zone=" + zoneName + "; path=" + root + "; SameSite=Lax; max-age=31536000";
  const countInTitle = () => {
    if (!document.querySelector("#region-approvals, nav.place")) return;
    const n = document.querySelector("#count-approvals .count")?.firstChild?.textContent.trim();
    const plain = document.title.replace(/^\([\d,]+\+?\) /, "");
    const title = n ? "(" + n + ") " + plain : plain;
    if (document.title !== title) document.title = title;
  };
  let asks = 0;
  setInterval(() => {
    const open = document.querySelector(".follow:has([data-open])");
    if (open && !document.hidden && (++asks < 60 || asks % 15 === 0)) htmx.trigger(open, "ask");
  }, 1000);

  // --- a decision: the button is active once the last argument was on the screen or in focus, and says what it does ---
  // A press counts if the page was shown for a second before it began, so that a double tap decides one request.
  const seenRows = new WeakSet(), decide = document.getElementById("decide");
  // A browser that returns to a page also scrolls to where the reader was: what is above was on the screen then.
  const returned = performance.getEntriesByType("navigation")[0]?.type !== "navigate";
  const choice = () => decide.querySelector("[name=alternative]:checked");
  const lastRow = () => document.querySelector("#" + (choice()?.dataset.table ?? "arguments") + " tbody tr:last-child");
  const SHOWN_MS = 1000;
  let ready = Infinity, pressed = 0, sent = false, moved = -Infinity;
  const arm = () => {
    const button = document.getElementById("approve"), row = decide && lastRow();
    if (!button || !row) return;
    const at = row.getBoundingClientRect(), bar = decide.querySelector(".bar").getBoundingClientRect();
    // Only what the person moved into view was read, not what a browser scrolls to, as while a reason is typed.
    const own = scrollY === 0 || returned || performance.now() - moved < SHOWN_MS;
    if (own && (at.bottom > 0 || returned) && at.bottom <= Math.min(innerHeight, bar.top) + 1) seenRows.add(row);
    if (row.contains(document.activeElement)) seenRows.add(row);
    const wait = !seenRows.has(row), early = performance.now() < ready;
    for (const each of decide.querySelectorAll(".bar button")) each.disabled = early;
    button.disabled = wait || early || button.dataset.blocked !== undefined;
    document.getElementById("approve-wait").hidden = !wait;
    if (wait) row.tabIndex = 0;
    else if (document.activeElement !== row) row.removeAttribute("tabindex");
  };
  const shown = () => requestAnimationFrame(() => {
    ready = performance.now() + SHOWN_MS;
    pressed = 0;
    sent = false;
    arm();
    setTimeout(arm, SHOWN_MS + 1);
  });
  const sentence = () => {
    const to = document.getElementById("changed-sentence"), of = document.getElementById("approve");
    if (to) to.textContent = of?.dataset.sentence ? "You change it: " + of.dataset.sentence : "";
  };
  if (decide) {
    let preview = 0;
    const edited = event => {
      if (!event.target.closest("#calls")) return;
      const field = event.target, row = field.closest("tr");
      const before = field.type === "checkbox" ? field.defaultChecked : field.defaultValue;
      if (row && before !== undefined) {
        row.classList.toggle("changed", (field.type === "checkbox" ? field.checked : field.value) !== before);
      }
      field.closest(".field")?.querySelector(".error")?.remove(); // the preview says what is wrong now
      field.removeAttribute("aria-invalid");
      clearTimeout(preview);
      preview = setTimeout(() => htmx.trigger("#region-choice", "edited"), 300);
      arm();
    };
    decide.addEventListener("input", edited);
    decide.addEventListener("focusin", arm);
    for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) addEventListener(kind, event => {
      if (event.target.closest?.("input, textarea, select")) return;
      moved = performance.now();
      requestAnimationFrame(arm);
    }, {passive: true, capture: true});
    addEventListener("scroll", () => {
      if (performance.now() - moved < SHOWN_MS) moved = performance.now(); // it goes on after the finger is lifted
      arm();
    }, {passive: true});
    addEventListener("resize", arm);
    document.getElementById("approve-wait")?.addEventListener("click", () => lastRow().focus());
    addEventListener("pageshow", shown);
    document.addEventListener("visibilitychange", () => { if (ready === Infinity) shown(); });
    for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, event => {
      if (!event.repeat) pressed = performance.now();
    }, true);
    addEventListener("click", event => {
      // A click without a press on this page is that of a screen reader, unless it has a count: its press was before.
      if (event.target.closest?.(".bar button") && (pressed ? pressed < ready : event.detail > 0)) event.preventDefault();
    }, true);
    decide.addEventListener("submit", event => {
      if (sent) event.preventDefault();
      sent = true;
    });
    document.addEventListener("htmx:after:swap", () => { arm(); sentence(); });
    arm();
  }
  document.addEventListener("htmx:after:swap", countInTitle);
  if (decide && document.getElementById("done")) document.getElementById("request").focus({preventScroll: true}); // the next one
  const chip = document.querySelector(".inbox-top .chips [aria-current]"), chips = chip?.closest("ul");
  if (chip) chips.scrollLeft = chip.offsetLeft - chips.offsetLeft - (chips.clientWidth - chip.offsetWidth) / 2;
  const searching = document.getElementById("searching");
  searching?.addEventListener("toggle", () => { if (searching.open) document.getElementById("text").focus(); });

  // --- keys; no single one decides anything ---
  const off = () => localStorage.getItem("outlast-keys") === "off";
  const places = {a: "/approvals", n: "/", r: "/runs"};
  for (const box of document.querySelectorAll("[data-keys]")) {
    box.checked = !off();
    box.addEventListener("change", () => localStorage.setItem("outlast-keys", box.checked ? "on" : "off"));
  }
  let first = "";
  const rows = () => [...document.querySelectorAll("tr[id] a[href], li[id] > a[href]")].filter(
    (each, i, all) => all.findIndex(other => other.closest("[id]") === each.closest("[id]")) === i);
  const step = by => {
    const all = rows(), at = all.indexOf(document.activeElement);
    all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))]?.focus();
  };
  document.addEventListener("keydown", event => {
    const button = document.getElementById("approve");
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.repeat || off() || !decide || !button) return;
    event.preventDefault();
    if (!button.disabled) return decide.requestSubmit(button);
    if (seenRows.has(lastRow())) return;
    lastRow().focus();
    say("The last argument. Press the keys again to approve.");
  });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.altKey || event.metaKey || off()) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const key = event.key, before = first;
    first = key === "g" ? "g" : "";
    if (before === "g" && places[key]) location.href = root + places[key];
    else if (key === "/") {
      if (searching) searching.open = true;
      document.querySelector("input[type=search]")?.focus();
    } else if (key === "r") document.getElementById("reason")?.focus();
    else if (key === "j") step(1);
    else if (key === "k") step(-1);
    else if (key === "[") document.querySelector("a[rel=prev]")?.click();
    else if (key === "]") document.querySelector("a[rel=next]")?.click();
    else if (key === "?") location.href = root + "/keys";
    else return;
    event.preventDefault();
  });
})();
