"use strict";

const place = (id) => document.getElementById(id);
const percent = (value) => (value === null ? "–" : `${Math.round(100 * value)} %`);
const kappa = (value) => (value === null ? "not defined" : value.toFixed(2));

function line(body, cells) {
  const row = body.appendChild(document.createElement("tr"));
  cells.forEach((text, number) => {
    const cell = row.appendChild(document.createElement(number ? "td" : "th"));
    cell.textContent = text;
  });
  return row;
}

function chart(row, value) {
  const cell = row.appendChild(document.createElement("td"));
  cell.className = "chart";
  const track = cell.appendChild(document.createElement("div"));
  track.className = "track";
  if (value === null) return;
  const bar = track.appendChild(document.createElement("div"));
  bar.style.width = `${Math.max(0, value) * 100}%`;
}

async function start() {
  const answer = await fetch("api/agreement");
  if (!answer.ok) {
    place("summary").textContent = await answer.text();
    return;
  }
  const found = await answer.json();
  const people = found.reviewers.length;
  if (!found.shared) {
    place("summary").textContent = `${people} ${people === 1 ? "person has" : "people have"} judged images so far, ` +
      "and no image has been judged by two of them.";
  } else {
    place("summary").textContent = `${people} people have judged images; ${found.shared} ${found.shared === 1 ? "image was" : "images were"} ` +
      `judged by at least two. Over all findings together, ${percent(found.overall.same)} of judgements are the same and ` +
      `${found.measure}'s kappa is ${kappa(found.overall.kappa)}.`;
  }
  place("measure").textContent = `${found.measure}'s kappa`;
  for (const person of found.reviewers) line(place("reviewers"), [person.name, person.images]);
  for (const pair of found.pairs) {
    line(place("pairs"), [pair.reviewers.join(" and "), pair.labels, pair.labels ? kappa(pair.kappa) : "–"]);
  }
  for (const one of [...found.classes, { name: "All together", ...found.overall }]) {
    const cells = [one.name, one.labels, one.positive, percent(one.same), one.labels ? kappa(one.kappa) : "–"];
    chart(line(place("classes"), cells), one.kappa);
  }
  place("classes").lastElementChild.className = "total";
}

start();
