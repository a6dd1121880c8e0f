// The explorer of a page without a server: it follows a graph that was computed in advance. The address has the numbers of the choices.
"use strict";

const graph = JSON.parse(document.getElementById("graph").textContent);
const text = (number) => graph.texts[number];

function element(name, content, attributes) {
  const made = document.createElement(name);
  made.append(...[content].flat());
  return Object.assign(made, attributes);
}

function rowList(rows) {
  return element("ul", rows.map((row) => element("li", text(row))), { className: "rows" });
}

function numbersOf(hash) {
  return hash.startsWith("#walk-") ? hash.slice("#walk-".length).split("-").map(Number) : [];
}

function addressOf(numbers) {
  return ["#walk", ...numbers].join("-");
}

function walkTo(hash) {
  const [taken, way, marks] = [[], [element("li", element("a", "start", { href: "#walk" }))], {}];
  let place = graph.places[0];
  for (const number of numbersOf(hash)) {
    const choice = place[4][number];
    if (!choice) break;
    taken.push(number);
    marks[text(place[0])] = "past";
    marks[text(choice[3])] = "past";
    place = graph.places[choice[1]];
    way.push(element("li", [element("a", text(choice[0]), { href: addressOf(taken) }), ` \u2192 ${text(place[0])}`]));
  }
  marks[text(place[0])] = "now";
  ["state", "values", "outstanding"].forEach((name, position) => {
    document.getElementById(`walk-${name}`).textContent = text(place[position]);
  });
  const over = place[3] ? "A run ends here: every event is refused." : "";
  document.getElementById("walk-over").textContent = over || (place[4].length ? "" : "Nothing is accepted here.");
  document.getElementById("walk-choices").replaceChildren(...place[4].map(([name, target, effects, , rows], number) => {
    const link = element("a", text(name), { href: addressOf([...taken, number]), className: "choice" });
    const asks = text(effects) ? `, asks for ${text(effects)}` : "";
    return element("li", [link, ` \u2192 ${text(graph.places[target][0])}${asks}`, rowList(rows)]);
  }));
  document.getElementById("walk-refusals").replaceChildren(...place[5].map(([name, why, rows]) =>
    element("li", [element("b", text(name)), ` ${text(why)}`, rowList(rows)])));
  document.getElementById("walk-way").replaceChildren(...way);
  document.getElementById("back").href = addressOf(taken.slice(0, -1));
  mark(marks);
}

window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#walk")) walkTo(location.hash);
});
walkTo(location.hash);
