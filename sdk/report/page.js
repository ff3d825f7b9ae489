// SPDX-License-Identifier: Apache-2.0
// What a report does beyond standing there: answers are shown as Markdown, texts are searched, the timeline is zoomed.
// Without a script the page holds all the same. Functions of sdk/web/markdown.js stand before it.
const find = (id) => document.getElementById(id);

// Texts: a block with data-md is rendered when it is first seen or searched. The text as it was written stays.
const written = (block) => block.querySelector("pre");

function render(block) {
  if (!("md" in block.dataset) || block.querySelector(".md")) return;
  const original = written(block), shown = markdown(original.textContent);
  original.hidden = true;
  block.append(shown);
  if (!shown.querySelector(":not(p, br)")) return;  // there is no other way to show it
  const as = element("button", "as-written", "as written");
  as.type = "button";
  as.setAttribute("aria-pressed", "false");
  as.onclick = () => {
    const plain = original.hidden;
    original.hidden = !plain;
    shown.hidden = plain;
    as.setAttribute("aria-pressed", String(plain));
  };
  block.append(as);
}

function renderCode(block) {
  const original = written(block);
  if (!original.querySelector("code")) original.replaceChildren(highlighted(original.textContent, block.dataset.code));
}

function renderOpen(root) {
  for (const block of root.querySelectorAll(".text")) {
    if (!block.checkVisibility()) continue;
    if ("code" in block.dataset) renderCode(block);
    else render(block);
  }
}

// Search: all texts of the page, whether they are unfolded or not.
const kMaxFound = 2000;
const search = {found: [], at: -1};
const highlights = globalThis.CSS?.highlights;

/** Where `wanted`, an expression with the flag g, matches what is shown of a block: ranges over its text nodes. */
function rangesIn(block, wanted, room) {
  const root = [...block.children].find((child) => !child.hidden && child.tagName !== "BUTTON");
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), nodes = [], begins = [];
  let text = "", node = 0;
  while (walker.nextNode()) {
    begins.push(text.length);
    nodes.push(walker.currentNode);
    text += walker.currentNode.data;
  }
  const ranges = [];
  for (const {0: found, index} of text.matchAll(wanted)) {
    if (ranges.length >= room) break;
    const range = new Range(), last = index + found.length - 1;
    while (node + 1 < nodes.length && begins[node + 1] <= index) ++node;
    range.setStart(nodes[node], index - begins[node]);
    while (node + 1 < nodes.length && begins[node + 1] <= last) ++node;
    range.setEnd(nodes[node], last - begins[node] + 1);
    ranges.push(range);
  }
  return ranges;
}

function look() {
  const value = find("find-text").value, wanted = new RegExp(value.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "giu");
  search.found = [];
  search.at = -1;
  if (value) {
    for (const block of document.querySelectorAll(".text")) {
      if (search.found.length >= kMaxFound) break;
      render(block);
      let ranges = rangesIn(block, wanted, kMaxFound - search.found.length);
      const other = block.querySelector(".as-written");
      if (!ranges.length && other) {  // signs of Markdown are in the text as written alone, and words across them are not
        other.click();
        ranges = rangesIn(block, wanted, kMaxFound - search.found.length);
        if (!ranges.length) other.click();
      }
      search.found.push(...ranges);
    }
  }
  highlights?.set("found", new Highlight(...search.found));
  if (search.found.length) step(1);
  else highlights?.delete("found-now");
  say();
}

function say() {
  const {found, at} = search, many = found.length >= kMaxFound ? `${kMaxFound} or more` : found.length;
  find("find-count").textContent = !find("find-text").value ? "" : found.length ? `${at + 1} of ${many}` : "none";
  for (const name of ["find-back", "find-on"]) find(name).disabled = found.length === 0;
}

function step(by) {
  const {found} = search;
  if (!found.length) return;
  search.at = (search.at + by + found.length) % found.length;
  const range = found[search.at];
  for (let up = range.startContainer.parentElement; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
  if (highlights) highlights.set("found-now", new Highlight(range));
  else getSelection().setBaseAndExtent(range.startContainer, range.startOffset, range.endContainer, range.endOffset);
  const box = range.getBoundingClientRect();
  const inner = range.startContainer.parentElement.closest("pre");
  if (inner && inner.scrollHeight > inner.clientHeight) inner.scrollTop += box.top - inner.getBoundingClientRect().top - inner.clientHeight / 2;
  scrollBy(0, range.getBoundingClientRect().top - innerHeight / 2);
  say();
}

find("find").onsubmit = (event) => { event.preventDefault(); step(1); };
find("find-text").oninput = look;
find("find-back").onclick = () => step(-1);
find("find-text").onkeydown = (event) => {
  if (event.key === "Escape") { event.target.value = ""; look(); }
  if (event.key === "Enter" && event.shiftKey) { event.preventDefault(); step(-1); }
};
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
  event.preventDefault();
  find("find-text").select();
});

// The timeline: twice as wide with each step, and the moment under the pointer, or in the middle, stays where it is.
const kMaxZoom = 32;

function zooming(lanes) {
  const track = lanes.querySelector(".track"), controls = lanes.querySelector(".zoom");
  const to = (zoom, where = track.clientWidth / 2) => {
    zoom = Math.min(kMaxZoom, Math.max(1, zoom));
    const moment = (track.scrollLeft + where) / track.scrollWidth;
    lanes.dataset.zoom = zoom;
    track.firstElementChild.style.width = `${100 * zoom}%`;
    track.scrollLeft = moment * track.scrollWidth - where;
    controls.querySelector("output").textContent = `${zoom} ×`;
    controls.querySelector("[value=out]").disabled = controls.querySelector("[value=all]").disabled = zoom === 1;
    controls.querySelector("[value=in]").disabled = zoom === kMaxZoom;
  };
  const by = (factor, where) => to(factor * lanes.dataset.zoom, where);
  const keys = {"+": 2, "=": 2, "-": 0.5};
  const placeOf = (event) => event.clientX - track.getBoundingClientRect().left;
  controls.onclick = ({target: {value}}) => (value === "all" ? to(1) : value && by(value === "in" ? 2 : 0.5));
  track.ondblclick = (event) => by(2, placeOf(event));
  track.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    by(event.deltaY < 0 ? 2 : 0.5, placeOf(event));
  }, {passive: false});
  track.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || !(event.key in keys || event.key === "0")) return;
    event.preventDefault();
    if (event.key === "0") to(1);
    else by(keys[event.key]);
  };
  to(1);
}

for (const lanes of document.querySelectorAll(".lanes")) zooming(lanes);
for (const part of document.querySelectorAll("[data-script]")) part.hidden = false;
document.addEventListener("toggle", (event) => renderOpen(event.target), true);
renderOpen(document);
say();
