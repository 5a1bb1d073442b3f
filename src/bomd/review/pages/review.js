"use strict";

/* Every text that comes from the run is put in with textContent: ids and class names may hold anything. */
const place = (id) => document.getElementById(id);
const PAGE = 50;
const KEY = "bomd-reviewer";
const FILTERS = { class: "filter-class", kind: "filter-kind", state: "filter-state", text: "filter-text", order: "filter-order", basis: "filter-basis" };
const DONE = { accept: "accepted", keep: "kept as given", edit: "edited", skip: "skipped" };

const state = {
  run: null, // facts about the run
  reviewer: "",
  items: [], // the part of the queue that is listed
  image: null, // the image on show
  labels: [], // the reviewer's: 1, 0 or null
  reasons: new Map(), // words that are not saved yet, by image: they wait while others are looked at
  touched: false, // whether the reviewer toggled anything
  warned: "", // the contradictory labels that the reviewer was warned of last
  busy: false,
  seen: [], // images in the order they were shown
  at: -1, // where in it we are
};

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function say(text, wrong = false) {
  place("status").textContent = text;
  place("status").classList.toggle("wrong", wrong);
}

async function reach(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error(`${options ? "Not saved: the" : "The"} server does not answer`);
  }
}

async function ask(address, body) {
  const options = body && {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ reviewer: state.reviewer, ...body }),
  };
  const answer = await reach(address, options);
  if (!answer.ok) throw new Error((await answer.text()).trim().slice(0, 300));
  return answer.json();
}

function load(address) {
  return new Promise((resolve, reject) => {
    const picture = new Image();
    picture.onload = () => resolve(picture);
    picture.onerror = () => reject(new Error("The picture cannot be shown."));
    picture.src = address;
  });
}

/* The queue */

function filters() {
  return Object.fromEntries(Object.entries(FILTERS).map(([name, id]) => [name, place(id).value]));
}

async function refresh(start = 0) {
  const query = new URLSearchParams({ reviewer: state.reviewer, start, count: PAGE, ...filters() });
  const found = await ask(`api/queue?${query}`);
  if (!start) place("list").replaceChildren();
  state.items = start ? [...state.items, ...found.items] : found.items;
  for (const item of found.items) place("list").append(queueLine(item));
  place("count").textContent = `${found.total.toLocaleString("en")} image${found.total === 1 ? "" : "s"}`;
  place("more").hidden = state.items.length >= found.total;
  showProgress(found.progress);
  markCurrent();
  if (!start) showLessons(await ask(`api/learnt?${new URLSearchParams({ reviewer: state.reviewer })}`));
  return found;
}

/* What the decisions so far say: how many proposals were taken, and how often labels of each finding are wrong. */
function showLessons({ judged, first, asked, accepted, updated, classes }) {
  const time = updated && new Date(updated.time).toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false });
  const ours = place("filter-basis").value === "decisions";
  const share = asked ? `${accepted} of ${asked} (${Math.round((100 * accepted) / asked)} %)` : "none yet";
  place("learning-summary").textContent = `Proposed changes taken: ${share}`;
  let note = `${state.run.one_label ? "Images have one label each" : "This run holds no scores"}, so that nothing is learnt from decisions.`;
  if (updated) note = `Order and probabilities of what is left were updated at ${time} by your ${updated.judged} judged images. Proposals stay as they are.`;
  else if (first) note = `From ${first} judged images on, order and probabilities follow from what you decide; so far ${judged}.`;
  place("learning-note").textContent = note;
  place("learnt-note").textContent = updated && ours ? `updated ${time} by ${updated.judged} images` : "as the run gave it";
  const lines = classes.filter((one) => one.asked).map((one) => {
    const row = make("tr");
    const name = row.appendChild(make("th", "", one.name));
    name.scope = "row";
    row.append(make("td", "", `${one.accepted} of ${one.asked}`));
    for (const rate of [one.false_alarm, one.miss]) {
      row.append(make("td", "", rate ? rate.map((value) => `${(100 * value).toFixed(1)} %`).join(" → ") : "–"));
    }
    return row;
  });
  place("lessons").replaceChildren(...lines);
  place("lessons").parentElement.hidden = !lines.length;
}

function showProgress({ images, decided, skipped }) {
  place("progress").max = images;
  place("progress").value = decided;
  const later = skipped ? ` · ${skipped} skipped` : "";
  place("progress-text").textContent = `${decided.toLocaleString("en")} of ${images.toLocaleString("en")} decided${later}`;
}

function queueLine(item) {
  const line = make("li");
  const button = line.appendChild(make("button", "item"));
  button.dataset.number = item.number;
  const picture = button.appendChild(make("img"));
  picture.loading = "lazy";
  picture.alt = "";
  picture.src = `picture/${item.number}?small`;
  const text = button.appendChild(make("span", "text"));
  text.append(make("span", "title", item.id), changesOf(item));
  const side = button.appendChild(make("span", "side"));
  const number = side.appendChild(make("span", "suspicion"));
  if (item.lift) number.append(make("span", item.lift > 0 ? "rise" : "fall", item.lift > 0 ? "↑" : "↓"));
  number.append(item.expected.toFixed(1));
  number.title = `Labels expected to be wrong${item.lift ? `; ${item.lift > 0 ? "raised" : "lowered"} by your decisions on similar images` : ""}`;
  if (item.action) side.append(make("span", `mark ${item.action}`, DONE[item.action].split(" ")[0]));
  button.addEventListener("click", () => guarded(() => visit(item.number), true));
  return line;
}

function changesOf(item) {
  const line = make("span", "changes");
  for (const [sign, kind] of [["+", "added"], ["−", "removed"]]) {
    for (const column of item[kind]) line.append(make("span", kind, `${sign}${state.run.classes[column]}`), " ");
  }
  if (!line.childNodes.length) line.textContent = "no change proposed";
  return line;
}

function markCurrent() {
  for (const button of place("list").querySelectorAll(".item")) {
    const current = state.image !== null && Number(button.dataset.number) === state.image.number;
    button.setAttribute("aria-current", current ? "true" : "false");
  }
}

/* The image on show */

async function visit(number, remember = true) {
  if (remember) {
    state.seen = [...state.seen.slice(0, state.at + 1), number];
    state.at = state.seen.length - 1;
  }
  const query = new URLSearchParams({ reviewer: state.reviewer, basis: place("filter-basis").value });
  const [image, picture] = await Promise.all([ask(`api/image/${number}?${query}`), load(`picture/${number}`)]);
  state.image = image;
  history.replaceState(null, "", `#${number}`);
  startLabels();
  place("image-id").textContent = image.id;
  place("image-facts").textContent = factsOf(image).join(" · ");
  place("picture-note").textContent = image.picture.why;
  place("decision").textContent = image.decision ? `You ${DONE[image.decision.action]}`.replace("You kept", "You kept it") : "";
  viewer.show(picture);
  showBanner("");
  showNeighbours();
  chooseHeat();
  markCurrent();
  scrollList();
  window.scrollTo(0, 0); // on a phone, back to the picture
}

/* Only the list scrolls to its current line: on a phone, scrollIntoView would take the page away from the picture. */
function scrollList() {
  const list = place("list");
  const listed = list.querySelector(".item[aria-current=true]");
  if (!listed) return;
  const [line, frame] = [listed.getBoundingClientRect(), list.getBoundingClientRect()];
  if (line.top < frame.top) list.scrollTop += line.top - frame.top;
  else if (line.bottom > frame.bottom) list.scrollTop += line.bottom - frame.bottom;
}

function factsOf(image) {
  const facts = image.patient === null ? [] : [`Patient ${image.patient}`];
  facts.push(`place ${image.place.toLocaleString("en")}`);
  facts.push(`${image.expected.toFixed(1)} labels expected to be wrong`);
  if (state.run.has.files && !image.picture.original) facts.push(`packed picture, ${state.run.packed} px`);
  return facts;
}

/* Edits start from the given labels, not from the proposal: a saved edit then holds what was given and what the
   reviewer changed, and nothing that was merely proposed and never looked at. */
function startLabels() {
  const { decision, number } = state.image;
  state.labels = (decision && decision.labels) || labelsOf("given");
  place("reason").value = state.reasons.get(number) ?? decision?.reason ?? "";
  state.touched = false;
  state.warned = "";
  showLabels();
}

function labelsOf(kind) {
  return state.image.labels.map((label) => (label[kind] < 0 ? null : label[kind]));
}

/* "No Finding" beside a finding: a slip, most of the time. */
function contradiction(labels) {
  const { nothing, classes } = state.run;
  if (nothing === null || labels[nothing] !== 1) return "";
  const found = classes.filter((_, column) => column !== nothing && labels[column] === 1);
  return found.length ? `${classes[nothing]} together with ${found.join(", ")}` : "";
}

function showLabels() {
  const lines = state.image.labels.map((label, column) => labelLine(label, column));
  place("labels").replaceChildren(...lines);
  const clash = contradiction(state.labels);
  place("conflict").textContent = clash && `${clash}: one of them is probably wrong.`;
  place("conflict").hidden = !clash;
  place("edit").classList.toggle("primary", state.touched);
  place("accept").classList.toggle("primary", !state.touched);
}

function keyOf(column) {
  if (column > 19) return "";
  return `${column > 9 ? "⇧" : ""}${(column + 1) % 10}`;
}

function sign(value) {
  const shown = make("span", value === 1 ? "yes" : value === 0 ? "no" : "unknown");
  shown.textContent = value === 1 ? "yes" : value === 0 ? "no" : "?";
  return shown;
}

function meter(value, text) {
  const track = make("span", "meter");
  const bar = track.appendChild(make("span", "fill"));
  bar.style.width = `${Math.round(100 * Math.min(1, Math.max(0, value)))}%`;
  track.append(make("span", "number", text));
  return track;
}

function labelLine(label, column) {
  const name = state.run.classes[column];
  const row = make("tr");
  const differs = label.proposed !== label.given;
  if (differs) row.className = label.proposed === 1 ? "adds" : "removes";
  const cells = Array.from({ length: 7 }, () => row.appendChild(make("td")));
  cells[0].append(make("kbd", "", keyOf(column)));
  const title = cells[1].appendChild(make("button", "finding", name));
  title.title = state.run.has.heat ? `${name}: show where` : name; // a long one is cut
  title.addEventListener("click", () => setHeat(place("heat").value === String(column) ? "" : String(column)));
  cells[1].className = "name";
  cells[2].append(sign(label.given));
  cells[3].append(sign(label.proposed));
  if (label.votes !== null) cells[3].title = `${Math.round(100 * label.votes)}% of the nearest images have it`;
  if (label.wrong === null) cells[4].textContent = "–";
  else cells[4].append(meter(label.wrong, label.wrong.toFixed(2)));
  if (!label.learnt) cells[4].title = "Not learnt: too few labels, or evidence near chance";
  else if (typeof label.before === "number") cells[4].title = `${label.before.toFixed(2)} by the run, ${label.wrong.toFixed(2)} after your decisions`;
  if (label.classifier === null) cells[5].textContent = "–";
  else cells[5].append(meter(label.classifier, label.classifier.toFixed(2)));
  const value = state.labels[column];
  const toggle = cells[6].appendChild(make("button", "toggle"));
  toggle.dataset.column = column;
  toggle.setAttribute("role", "switch");
  toggle.setAttribute("aria-checked", value === 1 ? "true" : "false");
  toggle.setAttribute("aria-label", `${name}: ${value === 1 ? "yes" : value === 0 ? "no" : "not known"}`);
  toggle.classList.toggle("unset", value === null);
  toggle.classList.toggle("changed", (value ?? -1) !== label.given);
  toggle.append(make("span", "knob"));
  toggle.addEventListener("click", () => flip(column, true));
  return row;
}

function flip(column, focus = false) {
  if (!state.image || column >= state.labels.length) return;
  if (state.run.one_label) state.labels = state.labels.map((_, place) => Number(place === column)); // moved, never added
  else {
    const steps = state.image.labels[column].given < 0 ? [null, 1, 0] : [0, 1];
    const at = steps.indexOf(state.labels[column]);
    state.labels = state.labels.map((value, place) => (place === column ? steps[(at + 1) % steps.length] : value));
  }
  state.touched = true;
  showLabels();
  if (focus) place("labels").querySelector(`[data-column="${column}"]`).focus();
  say("Changed: press e to save, Esc to drop");
}

function showNeighbours() {
  const lines = state.image.neighbours.map((other) => {
    const line = make("li");
    const button = line.appendChild(make("button", "neighbour"));
    const picture = button.appendChild(make("img"));
    picture.src = `picture/${other.number}?small`;
    picture.alt = "";
    const names = other.labels.map((column) => state.run.classes[column]).join(", ") || "no positive label";
    button.append(make("span", "names", names));
    button.title = `${other.id}${other.same_patient ? " (same patient)" : ""}: ${names}`;
    if (other.same_patient) button.append(make("span", "same", "same patient"));
    button.addEventListener("click", () => guarded(() => compare(other), true));
    return line;
  });
  if (!lines.length) lines.push(make("li", "hint", "None are known for this image."));
  place("neighbours").replaceChildren(...lines);
}

async function compare(other) {
  viewer.show(await load(`picture/${other.number}`));
  showBanner(`Nearest image ${other.id} – Esc goes back`);
}

async function leaveComparison() {
  if (place("banner").hidden || !state.image) return;
  viewer.show(await load(`picture/${state.image.number}`));
  showBanner("");
  drawHeat();
}

function showBanner(text) {
  place("banner").textContent = text;
  place("banner").hidden = !text;
}

/* Heat maps */

let suggested = "";

function chooseHeat() {
  const { labels } = state.image;
  const changed = labels.findIndex((label) => label.proposed !== label.given);
  suggested = String(Math.max(0, changed));
  drawHeat();
}

function setHeat(column) {
  place("heat").value = column;
  drawHeat();
}

async function drawHeat() {
  const column = place("heat").value;
  const shown = state.image;
  if (!column || !shown || !place("banner").hidden) {
    viewer.overlay(null);
    return;
  }
  const address = `heat/${shown.number}/${column}`;
  const done = showDrawing();
  try {
    const answer = await reach(address);
    if (!answer.ok) throw new Error((await answer.text()).trim());
    const picture = await load(address);
    state.run.model_ready = true;
    if (state.image === shown && place("heat").value === column) viewer.overlay(picture);
  } catch (error) {
    place("heat").value = "";
    viewer.overlay(null);
    say(error.message, true);
  } finally {
    done();
  }
}

/* A sign that a heat map is on its way: at once while the model is opened, later ones only if they take long. */
let drawings = 0;

function showDrawing() {
  const sign = place("drawing");
  drawings += 1;
  const timer = setTimeout(() => {
    sign.textContent = state.run.model_ready ? "Drawing the heat map …" : "Opening the model for the first heat map …";
    sign.hidden = false;
  }, state.run.model_ready ? 300 : 0);
  return () => {
    clearTimeout(timer);
    drawings -= 1;
    sign.hidden = drawings === 0 || sign.hidden;
  };
}

/* Decisions */

async function act(action, extra = {}) {
  const image = state.image;
  if (!image || state.busy) return;
  if (state.touched && action !== "edit") {
    say("You changed labels: press e to save them, or Esc to drop them", true);
    return;
  }
  const labels = { accept: () => labelsOf("proposed"), keep: () => labelsOf("given"), edit: () => state.labels }[action];
  const clash = labels ? contradiction(labels()) : "";
  if (clash && state.warned !== `${action} ${clash}`) {
    state.warned = `${action} ${clash}`;
    say(`Not saved yet: press ${action[0]} again to save ${clash}`, true);
    return;
  }
  await guarded(async () => {
    say("Saving …");
    await ask("api/decide", { number: image.number, id: image.id, action, reason: place("reason").value, ...extra });
    state.reasons.delete(image.number);
    say(`Saved: ${DONE[action]}`);
    await goOn();
  });
}

async function goOn() {
  const found = await refresh();
  if (found.next !== null) await visit(found.next);
  else {
    const rest = found.progress.skipped ? " Skipped images are under Show." : "";
    finish(`Nothing left to decide with these filters.${rest}`);
  }
}

async function openFirst() {
  const found = await refresh();
  const first = found.next ?? found.items[0]?.number;
  if (first === undefined) finish("No image of the queue fits these filters.");
  else await visit(first);
}

function finish(text) {
  state.image = null;
  state.labels = [];
  place("reason").value = "";
  viewer.clear();
  place("image-id").textContent = "";
  place("image-facts").textContent = "";
  place("picture-note").textContent = "";
  place("conflict").hidden = true;
  place("decision").textContent = "";
  place("labels").replaceChildren();
  place("neighbours").replaceChildren();
  history.replaceState(null, "", location.pathname);
  markCurrent();
  showBanner(text);
}

async function undo() {
  await guarded(async () => {
    const { number, reason } = await ask("api/undo", {});
    say("Undone");
    await refresh();
    await visit(number);
    if (state.image.decision) return; // an earlier one stands again, with its own reason
    if (!state.reasons.has(number)) state.reasons.set(number, reason); // what was written since is not lost
    startLabels();
  });
}

/* One request that changes something at a time; what fails is said and changes nothing on the page. */
async function guarded(work, patient = false) {
  while (patient && state.busy) await new Promise((resolve) => setTimeout(resolve, 20));
  if (state.busy) return;
  state.busy = true;
  document.body.classList.add("busy");
  place("reason").readOnly = true; // or words would go to an image that is about to leave
  try {
    await work();
  } catch (error) {
    say(error.message, true);
  } finally {
    state.busy = false;
    document.body.classList.remove("busy");
    place("reason").readOnly = false;
  }
}

function step(by) {
  const target = state.at + by;
  if (target >= 0 && target < state.seen.length) {
    state.at = target;
    return guarded(() => visit(state.seen[target], false));
  }
  if (by < 0) return say("This is the first image you saw");
  const at = state.items.findIndex((item) => state.image && item.number === state.image.number);
  const next = state.items[at + 1];
  if (!next) return say("This is the end of the list");
  return guarded(() => visit(next.number));
}

/* The reviewer's name */

function setReviewer(name) {
  state.reviewer = name;
  localStorage.setItem(KEY, name);
  place("reviewer").textContent = name;
}

function askName() {
  place("name").value = state.reviewer;
  place("name-problem").textContent = "";
  place("ask-name").showModal();
  place("name").select();
}

/* The image that the address asks for: "#12" by number, as this page writes it, or "#image=ID", as reports link it. */
async function wanted() {
  const number = /^#([0-9]{1,9})$/.exec(location.hash);
  if (number) return Number(number[1]) < state.run.images ? Number(number[1]) : null;
  if (!location.hash.startsWith("#image=")) return null;
  const id = decodeURIComponent(location.hash.slice("#image=".length));
  try {
    return (await ask(`api/find?${new URLSearchParams({ id })}`)).number;
  } catch (error) {
    say(error.message, true);
    return null;
  }
}

/* The image of the address, or the next one to decide on. */
async function openWanted() {
  const number = await wanted();
  if (number === null) await goOn();
  else {
    await refresh();
    await visit(number);
  }
}

async function saveName() {
  const name = place("name").value.trim();
  if (!name) {
    place("name-problem").textContent = "Please enter a name.";
    return;
  }
  setReviewer(name);
  place("ask-name").close();
  state.seen = [];
  state.at = -1;
  state.reasons.clear();
  await guarded(state.image ? goOn : openWanted); // somebody else starts at the top of their own queue
}

/* Keys and buttons */

function drop() {
  guarded(leaveComparison);
  if (state.touched) {
    startLabels();
    say("Changes dropped");
  }
}

const KEYS = {
  a: () => act("accept"),
  k: () => act("keep"),
  e: () => act("edit", { labels: state.labels }),
  s: () => act("skip"),
  r: () => state.image && place("reason").focus(),
  u: undo,
  n: () => step(1),
  ArrowRight: () => step(1),
  p: () => step(-1),
  ArrowLeft: () => step(-1),
  h: () => setHeat(place("heat").value ? "" : suggested),
  i: () => viewer.invert(),
  f: () => viewer.reset(),
  "+": () => viewer.zoomBy(1.25),
  "-": () => viewer.zoomBy(0.8),
  "?": () => place("keys").showModal(),
  Escape: drop,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const field = event.target.closest("input, select");
  const slides = field && field.type === "range" && !/^(Arrow|Home|End|Page|Escape)/.test(event.key);
  if (field && !slides) { // a slider needs a few keys of its own only: after a drag, the others decide as ever
    if (event.key === "Escape" || (event.key === "Enter" && field.id === "reason" && !event.isComposing)) field.blur();
    return;
  }
  const digit = /^Digit([0-9])$/.exec(event.code);
  if (digit) {
    event.preventDefault();
    flip(((Number(digit[1]) + 9) % 10) + (event.shiftKey ? 10 : 0));
  } else if (Object.hasOwn(KEYS, event.key)) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

const viewer = new Viewer(place("canvas"), (shown) => {
  place("width").value = shown.width;
  place("level").value = shown.level;
  place("width-text").textContent = shown.width;
  place("level-text").textContent = shown.level;
  place("zoom-text").textContent = `${Math.round(100 * shown.zoom)}%`;
  place("invert").setAttribute("aria-pressed", shown.inverted ? "true" : "false");
});

for (const name of ["accept", "keep", "edit", "skip"]) place(name).addEventListener("click", () => KEYS[name[0]]());
place("undo").addEventListener("click", undo);
place("help").addEventListener("click", () => place("keys").showModal());
place("keys-close").addEventListener("click", () => place("keys").close());
place("reviewer").addEventListener("click", askName);
place("name-save").addEventListener("click", saveName);
place("name").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault(); // or the button that the focus returns to would be pressed
  saveName();
});
place("ask-name").addEventListener("cancel", (event) => !state.reviewer && event.preventDefault());
place("ask-name").addEventListener("close", () => state.reviewer || askName()); // browsers let Esc close it all the same
place("more").addEventListener("click", () => guarded(() => refresh(state.items.length)));
place("invert").addEventListener("click", () => viewer.invert());
place("reset").addEventListener("click", () => viewer.reset());
place("zoom-in").addEventListener("click", () => viewer.zoomBy(1.25));
place("zoom-out").addEventListener("click", () => viewer.zoomBy(0.8));
for (const name of ["width", "level"]) {
  place(name).addEventListener("input", () => viewer.setWindow(Number(place("width").value), Number(place("level").value)));
}
place("heat").addEventListener("change", drawHeat);
place("reason").addEventListener("input", () => {
  if (state.image) state.reasons.set(state.image.number, place("reason").value);
});
place("reason").addEventListener("change", () => state.image?.decision && say("Decide once more to save this reason"));
for (const field of document.querySelectorAll("select")) {
  // After a choice by mouse the keys decide again, or "a" would jump to a finding that begins with it.
  let pointed = false;
  field.addEventListener("pointerdown", () => { pointed = true; });
  field.addEventListener("keydown", () => { pointed = false; });
  field.addEventListener("change", () => pointed && field.blur());
}
window.addEventListener("hashchange", () => guarded(openWanted, true));
let waiting = 0;
for (const id of Object.values(FILTERS)) {
  place(id).addEventListener(id === "filter-text" ? "input" : "change", () => {
    sessionStorage.setItem("bomd-filters", JSON.stringify(filters()));
    clearTimeout(waiting);
    waiting = setTimeout(() => guarded(openFirst, true), id === "filter-text" ? 250 : 0);
  });
}

async function start() {
  state.run = await ask("api/run");
  state.run.classes.forEach((name, column) => {
    for (const id of ["filter-class", "heat"]) {
      const option = make("option", "", name);
      option.value = column;
      place(id).append(option);
    }
  });
  place("reasons").textContent = state.run.reasons.join(" ");
  document.querySelector(".where").hidden = !state.run.has.heat;
  if (!state.run.has.patients) place("filter-text-name").textContent = "Image";
  const saved = JSON.parse(sessionStorage.getItem("bomd-filters") || "{}");
  for (const [name, id] of Object.entries(FILTERS)) if (saved[name]) place(id).value = saved[name];
  const named = document.body.dataset.reviewer; // by the command; a new name there beats the one kept here
  const name = (named !== localStorage.getItem(`${KEY}-named`) && named) || localStorage.getItem(KEY);
  localStorage.setItem(`${KEY}-named`, named);
  if (!name) {
    await refresh();
    askName();
    return;
  }
  setReviewer(name);
  await openWanted();
}

guarded(start);
