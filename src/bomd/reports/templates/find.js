"use strict";
/* Filter and sort the examples of a gallery; without scripts all of them stand in the order of review. */
for (const gallery of document.querySelectorAll(".gallery")) {
  const finder = gallery.querySelector(".finder");
  const [finding, change, order, text] = ["finding", "change", "order", "text"].map((name) => finder.querySelector(`[name=${name}]`));
  const cards = [...gallery.querySelectorAll(".card")];
  const columns = (card, kind) => (card.dataset[kind] ? card.dataset[kind].split(" ") : []);
  const ORDERS = {
    place: (one, other) => one.dataset.place - other.dataset.place,
    expected: (one, other) => other.dataset.expected - one.dataset.expected,
    wrong: (one, other) => other.dataset.wrong - one.dataset.wrong,
    id: (one, other) => one.dataset.id.localeCompare(other.dataset.id, "en", { numeric: true }),
  };
  const fits = (card) => {
    const kinds = change.value === "added" || change.value === "removed" ? [change.value] : ["added", "removed"];
    const found = kinds.flatMap((kind) => columns(card, kind));
    const asked = finding.value ? found.includes(finding.value) : found.length > 0;
    const wanted = change.value === "none" ? !asked : asked || (!finding.value && change.value === "any");
    return wanted && card.dataset.id.toLowerCase().includes(text.value.trim().toLowerCase());
  };
  const show = () => {
    let shown = 0;
    for (const card of cards) {
      card.hidden = !fits(card);
      shown += card.hidden ? 0 : 1;
    }
    for (const box of gallery.querySelectorAll(".cards")) box.append(...[...box.children].sort(ORDERS[order.value]));
    finder.querySelector("output").textContent = `${shown} of ${cards.length} examples`;
  };
  for (const field of [finding, change, order, text]) field.addEventListener("input", show);
  finder.hidden = false;
  show();
}
