// The live parts of a page: what the server draws again is replaced. Nothing here knows what a machine is.
"use strict";

const link = document.getElementById("link");

function mark(marks) {
  for (const group of document.querySelectorAll("g[data-name]")) {
    const name = group.dataset.name;
    const halves = name.split("->");
    const arrow = halves.length > 1 ? halves.find((half) => half.startsWith("arrow ")) : undefined;
    const word = marks[name] || marks[arrow];
    group.classList.toggle("now", word === "now");
    group.classList.toggle("past", word === "past");
  }
  reveal();
}

// A drawing that is larger than its box scrolls to the present state.
function reveal() {
  for (const box of document.querySelectorAll(".drawing")) {
    const group = box.querySelector("g.now");
    if (!group) continue;
    const [outer, inner] = [box.getBoundingClientRect(), group.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom) box.scrollTop += inner.top - outer.top - outer.height / 3;
    if (inner.left < outer.left || inner.right > outer.right) box.scrollLeft += inner.left - outer.left - outer.width / 3;
  }
}

// A person may be in the middle of an answer while the page changes: the forms keep what was typed, as long as they ask the same question.
function typed(holder) {
  const values = {};
  for (const form of holder.querySelectorAll("form[data-keep]")) {
    values[form.dataset.keep] = [...form.elements].map((field) => [field.value, field.checked]);
  }
  return values;
}

// What a person has opened stays open, even if it is gone while a document is checked again.
const opened = new Set();

function place(summary) {
  const note = summary.closest(".note");
  return `${note ? note.firstElementChild.lastChild.textContent : ""} ${summary.textContent}`;
}

// A person who is on a button or in a field stays there, even if it is drawn again.
function nameOf(element) {
  const form = element.closest("form");
  const home = form ? form.dataset.keep || form.getAttribute("action") : "";
  return [element.tagName, home, element.name || element.getAttribute("aria-label") || element.textContent].join(" ");
}

function alike(holder, name) {
  const all = holder.querySelectorAll("a, button, summary, input, select, textarea, [tabindex]");
  return [...all].filter((each) => nameOf(each) === name);
}

// What had the focus and is gone may come back, as verdicts do after a check, unless the person goes elsewhere in the meantime.
const lost = new Map();
for (const sign of ["keydown", "pointerdown"]) document.addEventListener(sign, () => lost.clear());

function focusIn(holder) {
  const element = document.activeElement;
  if (!element || element === document.body) return lost.get(holder);
  if (element === holder || !holder.contains(element)) return null;
  const name = nameOf(element);
  const caret = element.matches("textarea, input:not([type])") ? [element.selectionStart, element.selectionEnd] : null;
  return {name, number: alike(holder, name).indexOf(element), caret};
}

function focusAgain(holder, was) {
  const element = alike(holder, was.name)[was.number];
  if (!element) return lost.set(holder, was);
  lost.delete(holder);
  element.focus({preventScroll: true});
  if (was.caret) element.setSelectionRange(...was.caret);
}

function replace(holder, html) {
  const values = typed(holder);
  for (const summary of holder.querySelectorAll("details > summary")) {
    if (summary.parentElement.open) opened.add(place(summary));
    else opened.delete(place(summary));
  }
  const focus = focusIn(holder);
  holder.innerHTML = html;
  for (const form of holder.querySelectorAll("form[data-keep]")) {
    (values[form.dataset.keep] || []).forEach(([value, checked], number) => {
      const field = form.elements[number];
      if (!field || field.type === "hidden") return;
      if (field.type === "radio") field.checked = checked;
      else field.value = value;
    });
  }
  for (const summary of holder.querySelectorAll("details > summary")) {
    if (opened.has(place(summary))) summary.parentElement.open = true;
  }
  if (focus) focusAgain(holder, focus);
}

function show(news) {
  for (const [id, html] of Object.entries(news.replace || {})) {
    const holder = document.getElementById(id);
    if (holder) replace(holder, html);
  }
  for (const [id, html] of Object.entries(news.append || {})) {
    const holder = document.getElementById(id);
    if (holder) holder.insertAdjacentHTML("beforeend", html);
  }
  if (news.marks && Object.keys(news.marks).length) mark(news.marks);
}

function listen(address) {
  const source = new EventSource(address);
  source.onopen = () => { link.textContent = "live"; };
  source.onmessage = (message) => show(JSON.parse(message.data));
  source.onerror = () => {
    link.textContent = source.readyState === EventSource.CLOSED ? "not connected: load the page again" : "connecting again";
  };
  window.addEventListener("pagehide", () => source.close());
}

// A form with a live answer: the server computes it again, one request at a time, and the address stays that of what is shown.
function follow(form) {
  const holder = document.getElementById(form.dataset.answer);
  const sliders = [...form.querySelectorAll("input[data-twin]")];
  let [isAsking, isNewer] = [false, false];

  async function ask() {
    isNewer = true;
    if (isAsking) return;
    isAsking = true;
    holder.setAttribute("aria-busy", "true");
    while (isNewer) {
      isNewer = false;
      const fields = [...new FormData(form)].filter(([, value]) => value.trim());
      const address = `${location.pathname}?${new URLSearchParams(fields)}`;
      const answer = await fetch(`${address}&part=answer`).catch(() => null);
      if (answer && [200, 409].includes(answer.status)) {
        replace(holder, await answer.text());
        history.replaceState(null, "", address);
        link.textContent = "";
      } else {
        link.textContent = "not connected: load the page again";
      }
    }
    holder.removeAttribute("aria-busy");
    isAsking = false;
  }

  form.addEventListener("input", (change) => {
    const field = change.target;
    if (field.dataset.twin) form.elements[field.dataset.twin].value = field.value;
    const slider = sliders.find((each) => each.dataset.twin === field.name && Number.isFinite(Number(field.value || NaN)));
    if (slider) slider.value = field.value;
    ask();
  });
  for (const slider of sliders) slider.hidden = false;
}

// In the explorer, Backspace or the left arrow goes one step back, and a digit takes that choice.
document.addEventListener("keydown", (press) => {
  if (press.target.closest("input, textarea, select") || press.ctrlKey || press.altKey || press.metaKey) return;
  const back = document.getElementById("back");
  if (back && press.key === "Backspace") back.click();
  const choice = /^[1-9]$/.test(press.key) && document.querySelectorAll("a.choice")[Number(press.key) - 1];
  if (choice) choice.click();
});

reveal();
document.querySelectorAll("form[data-answer]").forEach(follow);
if (document.body.dataset.live) listen(document.body.dataset.live);
