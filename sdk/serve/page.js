// SPDX-License-Identifier: Apache-2.0
// The page of `baton serve`: runs a workflow and shows its agents as they work. Functions of sdk/web/markdown.js stand
// before it.
const find = (id) => document.getElementById(id);
// Every text of the server goes into the page as text, never as markup.
const make = (tag, name, text) => element(tag, name, ...(text === undefined ? [] : [text]));
const kMaxEvents = 2000;
let models = [], chosen = null, stopper = null, agents = new Map(), count = 0;

async function errorOf(response) {
  try { return (await response.json()).error.message; } catch { return `the server answered with status ${response.status}`; }
}

async function load() {
  const response = await fetch("/v1/models");
  if (!response.ok) throw new Error(await errorOf(response));
  models = (await response.json()).data;
  for (const model of models) {
    const label = make("label", "choice"), radio = make("input"), text = make("span", "", model.id);
    radio.type = "radio";
    radio.name = "workflow";
    radio.onchange = () => choose(model);
    text.append(make("small", "", model.baton.agents.map((agent) => agent.role || agent.id).join(", ")));
    label.append(radio, text);
    find("workflows").append(label);
    if (model === models[0]) { radio.checked = true; choose(model); }
  }
  find("about").textContent = models.length === 1 ? "One workflow" : `${models.length} workflows`;
}

function choose(model) {
  chosen = model;
  find("inputs").replaceChildren();
  const texts = model.baton.inputs.filter((input) => input.type === "string");
  const message = model.baton.message ?? model.baton.history;
  const shown = model.baton.message ? texts : [{name: message, required: true, description: ""}, ...texts];
  shown.sort((a, b) => (b.name === message) - (a.name === message));
  for (const input of shown) {
    const label = make("label", "input", input.name), area = make("textarea", input.name === message ? "" : "other");
    if (input.description) label.append(" ", make("small", "", input.description));
    area.name = input.name;
    area.required = input.required;
    area.placeholder = input.default ?? "";
    label.append(area);
    find("inputs").append(label);
  }
  find("run").disabled = stopper !== null;
}

function cardOf(event) {
  const key = event.round > 1 ? `${event.agent} #${event.round}` : event.agent;
  if (agents.has(key)) return agents.get(key);
  if (agents.size === 0) find("agents").replaceChildren();
  const card = {root: make("div", "agent"), state: make("span", "state busy", "waiting"), text: make("pre"), fill: make("i"), tokens: 0};
  const head = make("header"), bar = make("div", "bar");
  card.text.dir = "auto";
  head.append(make("b", "", key), card.state);
  bar.append(card.fill);
  card.root.append(head, bar, card.text);
  find("agents").append(card.root);
  agents.set(key, card);
  return card;
}

const say = (card, name, text) => { card.state.className = "state " + name; card.state.textContent = text; };

// A text that is whole is shown as Markdown.
function asMarkdown(plain) {
  plain.hidden = true;
  plain.after(markdown(plain.textContent));
}

function asPlain(plain, text) {
  plain.textContent = text;
  plain.hidden = false;
  plain.parentElement.querySelector(":scope > .md")?.remove();
}

function finish() {
  if (find("answer").textContent) asMarkdown(find("answer"));
}

// Calls that wait for an approval, of all runs of this server.
let looking = 0;

async function lookForApprovals() {
  clearTimeout(looking);
  try {
    const response = await fetch("/v1/approvals");
    if (response.ok) showApprovals((await response.json()).data);
  } catch { /* the next look may succeed */ }
  // Questions of other clients may come at any time.
  looking = setTimeout(lookForApprovals, stopper || find("approvals").children.length > 0 ? 3000 : 15000);
}

function showApprovals(open) {
  const shown = new Map([...find("approvals").children].map((card) => [card.dataset.id, card]));
  for (const one of open) {
    if (!shown.delete(one.id)) find("approvals").append(approvalCard(one));  // what was typed into a card stays
  }
  for (const card of shown.values()) card.remove();
  find("asking").hidden = find("approvals").children.length === 0;
}

function approvalCard(one) {
  const card = make("div", "approval"), changed = make("textarea", "other"), reason = make("textarea", "other");
  const allow = make("button", "", "Allow"), deny = make("button", "second", "Deny"), problem = make("p", "failed");
  const given = one.arguments;  // as it is: numbers of more than 53 bits would change in a script
  card.dataset.id = one.id;
  changed.value = given;
  changed.name = "arguments";
  reason.name = "reason";
  problem.setAttribute("role", "alert");
  const what = make("p", "", `${one.model}: `);
  what.append(make("b", "", one.turn), " wants to call ", make("b", "", one.tool));
  const labels = [[changed, "Its arguments, which may be changed"], [reason, "If it is denied: a reason for the model"]];
  card.append(what, ...labels.map(([area, text]) => { const label = make("label", "", text); label.append(area); return label; }),
              allow, " ", deny, problem);
  const send = async (body) => {
    allow.disabled = deny.disabled = true;
    const response = await fetch(`/v1/approvals/${encodeURIComponent(one.id)}`, {
      method: "POST", headers: {"Content-Type": "application/json"}, body});
    if (!response.ok) throw new Error(await errorOf(response));
    card.remove();
  };
  const decide = (body) => send(body).catch((error) => {
    problem.textContent = error.message;
    allow.disabled = deny.disabled = false;
  }).finally(lookForApprovals);
  allow.onclick = () => {
    if (changed.value === given) return decide('{"decision": "allow"}');
    try {
      JSON.parse(changed.value);
      decide(`{"decision": "allow", "arguments": ${changed.value}}`);
    } catch (error) { problem.textContent = `The arguments are no JSON: ${error.message}`; }
  };
  deny.onclick = () => decide(JSON.stringify({decision: "deny", ...(reason.value === "" ? {} : {reason: reason.value})}));
  return card;
}

const handlers = {
  approval(event) {
    say(cardOf(event), "busy", `waits for an approval to call ${event.tool}`);
    lookForApprovals();
  },
  agent_started(event) { say(cardOf(event), "busy", `reads ${event.prompt_tokens} tokens`); },
  prefill(event) {
    const card = cardOf(event);
    card.reuse = `${Math.round(100 * event.kv.reuse_rate)} % of the KV reused`;
    card.fill.style.width = `${100 * event.kv.reuse_rate}%`;
    say(card, "busy", `writes, ${card.reuse}`);
  },
  token(event) {
    const card = cardOf(event);
    if (card.text.hidden) asPlain(card.text, "");  // the agent writes once more
    card.text.append(event.text);
    card.text.scrollTop = card.text.scrollHeight;
    say(card, "busy", `writes, ${++card.tokens} tokens` + (card.reuse ? `, ${card.reuse}` : ""));
  },
  tool_called(event) { say(cardOf(event), event.ok ? "busy" : "failed", `tool ${event.tool}: ${event.ok ? "ran" : "failed"}`); },
  agent_finished(event) {
    const record = event.record, card = cardOf(record);
    asPlain(card.text, record.output || record.error);
    asMarkdown(card.text);
    say(card, record.state === "ok" ? "ok" : "failed", record.state === "ok"
      ? `${record.output_tokens} tokens, first after ${Math.round(record.ttft_ms)} ms` + (card.reuse ? `, ${card.reuse}` : "")
      : record.state);
  },
};

function show(chunk) {
  if (chunk.error) throw new Error(chunk.error.message);
  for (const choice of chunk.choices) find("answer").append(choice.delta.content ?? "");
  if (chunk.usage) {
    const usage = chunk.usage;
    find("figures").textContent = `${usage.prompt_tokens} prompt tokens, of which ${usage.prompt_tokens_details.cached_tokens} ` +
      `were reused and ${chunk.baton.ahead_tokens} computed ahead; ${usage.completion_tokens} tokens written`;
  } else if (chunk.baton) {
    find("count").textContent = ++count;
    if (count <= kMaxEvents) find("events").append(JSON.stringify(chunk.baton) + "\n");
    handlers[chunk.baton.type]?.(chunk.baton);
  }
}

async function follow(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let held = "";;) {
    const {value, done} = await reader.read();
    if (done) throw new Error("the server ended the connection");
    held += value;
    for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2)) {
      const line = held.slice(0, end);
      if (line === "data: [DONE]") return;
      if (line.startsWith("data: ")) show(JSON.parse(line.slice(6)));
    }
  }
}

async function run() {
  const inputs = {}, message = chosen.baton.message ?? chosen.baton.history;
  let content = "";
  for (const area of find("inputs").querySelectorAll("textarea")) {
    if (area.name === message) content = area.value;
    else if (area.value !== "") inputs[area.name] = area.value;
  }
  agents = new Map();
  count = 0;
  for (const id of ["figures", "error", "events", "agents"]) find(id).replaceChildren();
  asPlain(find("answer"), "");
  find("count").textContent = "0";
  stopper = new AbortController();
  find("run").disabled = true;
  find("stop").disabled = false;
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: {"Content-Type": "application/json"},
      signal: stopper.signal,
      body: JSON.stringify({model: chosen.id, messages: [{role: "user", content}], stream: true,
                            stream_options: {include_usage: true}, baton: {events: true, inputs}}),
    });
    if (!response.ok) throw new Error(await errorOf(response));
    await follow(response.body);
    finish();
  } catch (error) {
    find("error").textContent = error.name === "AbortError" ? "Stopped." : error.message;
    for (const card of agents.values()) if (card.state.classList.contains("busy")) say(card, "failed", "stopped");
  } finally {
    stopper = null;
    find("run").disabled = false;
    find("stop").disabled = true;
    lookForApprovals();
  }
}

find("form").onsubmit = (event) => { event.preventDefault(); if (!stopper) run(); };
find("stop").onclick = () => stopper?.abort();
lookForApprovals();
load().catch((error) => { find("error").textContent = error.message; });
