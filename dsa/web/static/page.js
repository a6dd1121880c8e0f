// The live parts of a page: what the server draws anew is put in its place. Nothing here knows what a machine is.
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

// A drawing that is larger than its box shows the present state.
function reveal() {
  for (const box of document.querySelectorAll(".drawing")) {
    const group = box.querySelector("g.now");
    if (!group) continue;
    const [outer, inner] = [box.getBoundingClientRect(), group.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom) box.scrollTop += inner.top - outer.top - outer.height / 3;
    if (inner.left < outer.left || inner.right > outer.right) box.scrollLeft += inner.left - outer.left - outer.width / 3;
  }
}

// A person may be in the middle of an answer while the page changes: the forms keep what was typed, as long as they ask the same.
function typed(holder) {
  const values = {};
  for (const form of holder.querySelectorAll("form[data-keep]")) {
    values[form.dataset.keep] = [...form.elements].map((field) => [field.value, field.checked]);
  }
  return values;
}

// What a person has opened stays open, though it may be gone while a document is checked again.
const opened = new Set();

function place(summary) {
  const note = summary.closest(".note");
  return `${note ? note.firstElementChild.lastChild.textContent : ""} ${summary.textContent}`;
}

function replace(holder, html) {
  const values = typed(holder);
  for (const summary of holder.querySelectorAll("details > summary")) {
    if (summary.parentElement.open) opened.add(place(summary));
    else opened.delete(place(summary));
  }
  const focus = holder.contains(document.activeElement) && document.activeElement.closest("form[data-keep]");
  const there = focus ? [focus.dataset.keep, [...focus.elements].indexOf(document.activeElement)] : null;
  holder.innerHTML = html;
  for (const form of holder.querySelectorAll("form[data-keep]")) {
    (values[form.dataset.keep] || []).forEach(([value, checked], number) => {
      const field = form.elements[number];
      if (!field || field.type === "hidden") return;
      if (field.type === "radio") field.checked = checked;
      else field.value = value;
    });
    if (there && form.dataset.keep === there[0] && form.elements[there[1]]) form.elements[there[1]].focus();
  }
  for (const summary of holder.querySelectorAll("details > summary")) {
    if (opened.has(place(summary))) summary.parentElement.open = true;
  }
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

// In the explorer, Backspace or the left arrow goes one step back, and a digit takes that choice.
document.addEventListener("keydown", (press) => {
  if (press.target.closest("input, textarea, select") || press.ctrlKey || press.altKey || press.metaKey) return;
  const back = document.getElementById("back");
  if (back && press.key === "Backspace") back.click();
  const choice = /^[1-9]$/.test(press.key) && document.querySelectorAll("a.choice")[Number(press.key) - 1];
  if (choice) choice.click();
});

reveal();
if (document.body.dataset.live) listen(document.body.dataset.live);
