// SPDX-License-Identifier: Apache-2.0
// Markdown of agents' answers, as elements. Such a text is hostile: all of it becomes text in the elements named here,
// none of it becomes markup, an attribute or an address. The time grows with the length of the text alone: depths are
// limited, and no expression repeats a repetition.
"use strict";
const kMaxNesting = 12, kMaxColumns = 64;

const kKeywords = new Set(("and as assert async await bool break case catch char class const continue def default del do " +
  "double elif else enum except export extends extern false False finally float fn for from func function global if " +
  "impl import in int interface is lambda let long match module mut namespace new nil None nonlocal not null nullptr " +
  "operator or package pass private protected pub public raise return select self short signed sizeof static string " +
  "struct super switch template then this throw trait true True try type typedef typename undefined unsigned use using " +
  "var virtual void volatile when where while with yield").split(" "));
const kPlain = /^(?:|text|txt|plain|output|markdown|md|csv|diff|html|xml|svg)$/;
const kHash = /^(?:python|py|sh|bash|shell|console|yaml|yml|toml|ruby|rb|r|perl|cmake|make|makefile|dockerfile|ini)$/;
const kDashes = /^(?:sql|lua|haskell|hs|ada)$/;

const kInWord = /[\p{Script=Latin}\p{N}]/u;  // between two of these nothing is emphasised: 7*2 + 3*4, some_long_name

function element(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

// Code in which comments, strings, numbers and common keywords are told apart; nothing else is understood.
function highlighted(code, language) {
  const out = element("code");
  if (kPlain.test(language)) {
    out.append(code);
    return out;
  }
  const comment = kHash.test(language) ? "#.*" : kDashes.test(language) ? "--.*" : "//.*|/\\*[^]*?(?:\\*/|$)";
  const token = new RegExp(`(?<comment>${comment})|` +
    "(?<string>\"\"\"[^]*?(?:\"\"\"|$)|\"(?:[^\"\\\\\\n]|\\\\.)*\"?|(?<![\\p{L}\\p{N}])'(?:[^'\\\\\\n]|\\\\.)*'?)|" +
    "[\\p{L}_$][\\p{L}\\p{N}_$]*|(?<number>\\d[\\w.]*)", "gu");
  let at = 0;
  for (const found of code.matchAll(token)) {
    const {comment, string, number} = found.groups;
    const kind = comment ? "c-comment" : string ? "c-string" : number ? "c-number" : kKeywords.has(found[0]) ? "c-word" : "";
    if (!kind) continue;
    out.append(code.slice(at, found.index), element("span", kind, found[0]));
    at = found.index + found[0].length;
  }
  out.append(code.slice(at));
  return out;
}

const codeBlock = (code, language) => element("pre", "code", highlighted(code, language.toLowerCase()));

// Appends the text with its emphasis, code and links to `into`. A link is shown with its address and cannot be followed.
function inline(into, text) {
  const piece = /\\[!-/:-@[-`{-~]|(`+)|(\*{1,3}|_{1,3}|~~)|(!?)\[([^[\]]{0,1000})\]\(([^()\s]{0,2000})\)|\n/g;
  const open = [];            // emphasis that waits for its end, outermost first
  const unended = new Set();  // runs of backticks that have no second
  const top = () => (open.length ? open[open.length - 1].made : into);
  const giveUp = () => {  // it was no emphasis: the sign is text
    const {made, sign} = open.pop();
    made.remove();
    top().append(sign);
    while (made.firstChild) top().append(made.firstChild);
  };
  let at = 0;
  for (let found; (found = piece.exec(text));) {
    const [whole, ticks, sign, image, label, address] = found;
    const end = found.index + whole.length;
    top().append(text.slice(at, found.index));
    at = end;
    if (whole === "\n") {
      top().append(element("br"));
    } else if (ticks) {
      const second = unended.has(ticks) ? -1 : text.indexOf(ticks, end);
      if (second < 0) {
        unended.add(ticks);
        top().append(whole);
      } else {
        top().append(element("code", "", text.slice(end, second).replace(/\n/g, " ")));
        piece.lastIndex = at = second + ticks.length;
      }
    } else if (label !== undefined) {
      const same = label === address;
      top().append(element("span", "link", image ? "image: " : "", same ? "" : label,
        element("span", "address", same ? address : ` (${address})`)));
    } else if (sign) {
      const before = text[found.index - 1] ?? " ", after = text[end] ?? " ";
      const inWord = kInWord.test(before) && kInWord.test(after);
      const begun = open.findIndex((one) => one.sign === sign);
      if (begun >= 0 && !/\s/.test(before) && !inWord) {
        while (open.length > begun + 1) giveUp();
        open.pop();
      } else if (begun < 0 && !/\s/.test(after) && !inWord && open.length < kMaxNesting) {
        const made = element(sign === "~~" ? "del" : sign.length === 1 ? "em" : "strong", sign.length === 3 ? "em" : "");
        top().append(made);
        open.push({made, sign});
      } else {
        top().append(whole);
      }
    } else {
      top().append(whole[1]);
    }
  }
  top().append(text.slice(at));
  while (open.length) giveUp();
  return into;
}

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/;
const kHeading = /^ {0,3}(#{1,6})\s+(\S.*)$/;
const kRule = /^ {0,3}(?:-[ -]{2,}|\*[ *]{2,}|_[ _]{2,})$/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])(\s+|$)/;
const kBegins = /^ *(?:[-*+]|1[.)])\s/;  // a list that needs no empty line before it
const kColumns = /^\|?\s*:?-+:?(?:\s*\|\s*:?-+:?)*\s*\|?$/;
const kQuote = /^ {0,3}> ?/;

const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/, kMaxColumns);

const isColumns = (line) => line !== undefined && kColumns.test(line.trim());

function table(lines) {
  const sides = cells(lines[1]).map((cell) => (/^\s*-+:\s*$/.test(cell) ? "right" : ""));
  const row = (line, tag) => element("tr", "", ...cells(line).map((cell, i) => inline(element(tag, sides[i] ?? ""), cell.trim())));
  const body = element("tbody");
  for (const line of lines.slice(2)) body.append(row(line, "td"));
  return element("div", "scroll", element("table", "", element("thead", "", row(lines[0], "th")), body));
}

// The items of a list that begins at `from`; returns the line behind it.
function list(into, lines, from, depth) {
  const first = kItem.exec(lines[from]), numbered = /\d/.test(first[2]);
  const made = element(numbered ? "ol" : "ul");
  if (numbered) made.start = parseInt(first[2], 10);
  let at = from;
  while (at < lines.length) {
    const mark = kItem.exec(lines[at]);
    if (!mark || mark[1].length > first[1].length + 1 || mark[1].length < first[1].length || /\d/.test(mark[2]) !== numbered) break;
    const inner = [lines[at].slice(mark[0].length)], inside = mark[1].length + 2;
    for (at += 1; at < lines.length; ++at) {
      const line = lines[at], spaces = line.search(/\S/);
      const next = lines[at + 1] ?? "";
      const ended = spaces < 0 ? next.search(/\S/) < inside : spaces < inside && (kItem.test(line) || lines[at - 1].trim() === "" ||
        kFence.test(line) || kHeading.test(line) || kRule.test(line));
      if (ended) break;
      inner.push(line.slice(Math.max(0, Math.min(spaces, mark[0].length))));
    }
    made.append(blocks(element("li"), inner, depth + 1));
    if (at + 1 < lines.length && lines[at].trim() === "" && kItem.test(lines[at + 1])) at += 1;
  }
  into.append(made);
  return at;
}

function blocks(into, lines, depth) {
  const nests = depth < kMaxNesting;
  for (let at = 0; at < lines.length;) {
    const line = lines[at], fence = kFence.exec(line), heading = kHeading.exec(line);
    if (line.trim() === "") {
      at += 1;
    } else if (fence) {
      const code = [], indent = line.search(/\S/);
      for (at += 1; at < lines.length && !(lines[at].trim().startsWith(fence[1]) && /^[`~]+$/.test(lines[at].trim())); ++at)
        code.push(lines[at].slice(Math.min(indent, Math.max(0, lines[at].search(/\S/)))));
      at += 1;
      into.append(codeBlock(code.join("\n"), fence[2]));
    } else if (heading) {
      into.append(inline(element(`h${Math.min(6, 3 + heading[1].length)}`), heading[2].trim()));
      at += 1;
    } else if (kRule.test(line)) {
      into.append(element("hr"));
      at += 1;
    } else if (nests && kQuote.test(line)) {
      const inner = [];
      for (; at < lines.length && kQuote.test(lines[at]); ++at) inner.push(lines[at].replace(kQuote, ""));
      into.append(blocks(element("blockquote"), inner, depth + 1));
    } else if (nests && kItem.test(line)) {
      at = list(into, lines, at, depth);
    } else if (line.includes("|") && isColumns(lines[at + 1]) && cells(line).length === cells(lines[at + 1]).length) {
      const from = at;
      while (at < lines.length && lines[at].includes("|")) ++at;
      into.append(table(lines.slice(from, at)));
    } else {
      const from = at;
      for (at += 1; at < lines.length; ++at) {
        const next = lines[at];
        if (next.trim() === "" || kFence.test(next) || kHeading.test(next) || kRule.test(next) ||
            (nests && (kQuote.test(next) || kBegins.test(next)))) break;
        if (next.includes("|") && isColumns(lines[at + 1])) break;
      }
      into.append(inline(element("p"), lines.slice(from, at).map((one) => one.trimStart()).join("\n")));
    }
  }
  return into;
}

// A text of JSON is shown as code, any other as Markdown.
function markdown(text) {
  const into = element("div", "md");
  into.dir = "auto";
  if (/^\s*[{[]/.test(text)) {
    try {
      JSON.parse(text);
      into.append(codeBlock(text, "json"));
      return into;
    } catch { /* it only begins like JSON */ }
  }
  return blocks(into, text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"), 0);
}
