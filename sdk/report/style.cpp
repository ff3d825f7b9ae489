// SPDX-License-Identifier: Apache-2.0
// How a report looks: light, dark, narrow and on paper.
#include "sdk/report/page.h"

namespace baton::cli {

Markup report_style() {
  return R"css(
:root {
  color-scheme: light dark;
  --bg: #ffffff; --fg: #1c2430; --muted: #586374; --line: #d5dbe3; --card: #f5f7fa; --link: #1f5fa8;
  --good: #1b6e4f; --bad: #b3261e; --warn: #8a5a00;
  --wait: #9aa5b4; --queue: #c3cad4; --tool: #8a4fa8; --first: #d9822b; --decode: #2f74c0; --pause: #c3cad4;
  --prefix: #14694a; --ahead: #58b890; --reused: #e0b93b; --recomputed: #b85c1e; --full: #a3acb9; --hatch: #ffffff;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg: #12161c; --fg: #e4e9f0; --muted: #9ba7b6; --line: #333c48; --card: #1a2029; --link: #7db4f0;
    --good: #6cc9a1; --bad: #ff8a80; --warn: #f0bf6a;
    --wait: #657284; --queue: #47525f; --tool: #b98ad0; --first: #e89a4a; --decode: #5a9be0; --pause: #47525f;
    --prefix: #2f9a70; --ahead: #7ed3ae; --reused: #e3c35a; --recomputed: #d27a3c; --full: #5b6675; --hatch: #12161c;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 68rem; background: var(--bg); color: var(--fg);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { margin: 0; font-size: 1.6rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2.75rem 0 .5rem; font-size: 1.2rem; }
h3 { margin: 0; font-size: 1rem; }
p { margin: .4rem 0; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
bdi, td, dd { overflow-wrap: anywhere; }
header .top { display: flex; flex-wrap: wrap; gap: .25rem .75rem; align-items: center; }
nav { margin: .6rem 0 0; display: flex; flex-wrap: wrap; gap: .1rem 1rem; }
.muted { color: var(--muted); }
.state { padding: .05rem .55rem; border: 1px solid currentColor; border-radius: 1rem; font-size: .85rem; white-space: nowrap; }
.ok { color: var(--good); } .failed, .timeout { color: var(--bad); } .cancelled, .skipped { color: var(--warn); }
td .state { border: 0; padding: 0; }
.error { margin: .8rem 0; padding: .6rem .9rem; border: 1px solid var(--line); border-left: 4px solid var(--bad);
  border-radius: 4px; background: var(--card); white-space: pre-wrap; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(6, 1fr); gap: .6rem; margin: 1rem 0; }
.tiles div { padding: .55rem .8rem .65rem; border: 1px solid var(--line); border-radius: 6px; background: var(--card); }
.tiles dt { color: var(--muted); font-size: .82rem; }
.tiles dd { margin: 0; font-size: 1.3rem; font-weight: 600; line-height: 1.25; }
.tiles dd small { display: block; font-size: .8rem; font-weight: 400; color: var(--muted); }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .8rem 0; }
.facts dt { color: var(--muted); }
.facts dd { margin: 0; }
ul.found { margin: .5rem 0; padding-left: 1.2rem; }
pre { margin: .4rem 0; padding: .7rem .9rem; max-height: 32rem; overflow: auto; border: 1px solid var(--line); border-radius: 6px;
  background: var(--card); font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; }
code { font: 13px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace; overflow-wrap: anywhere; }
details { margin: .35rem 0; padding: .1rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.scroll { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--muted); padding-bottom: .2rem; }
th, td { padding: .28rem .8rem .28rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--muted); vertical-align: bottom; }
th[title] { text-decoration: underline dotted; text-underline-offset: 3px; }
th.n, td.n { text-align: right; } td.n { white-space: nowrap; }
td.w { white-space: nowrap; } td.t { min-width: 7rem; } td.t:last-child { min-width: 13rem; }
.legend { display: flex; flex-wrap: wrap; gap: .15rem 1.1rem; margin: .5rem 0; padding: 0; list-style: none; font-size: .88rem; }
.legend svg { width: 1.5rem; height: .8rem; margin-right: .35rem; vertical-align: -.05rem; }
.turn { margin: 1.4rem 0 0; padding-top: .9rem; border-top: 1px solid var(--line); }
.picture { display: block; width: 100%; margin: .4rem 0; overflow: visible; font-size: 12px; }
svg text { fill: var(--fg); }
svg .soft { fill: var(--muted); }
svg .name { font-size: 13px; font-weight: 600; }
svg a .name { fill: var(--link); }
svg .halo { paint-order: stroke; stroke: var(--bg); stroke-width: 5px; stroke-linejoin: round; }
svg .end { text-anchor: end; } svg .middle { text-anchor: middle; }
svg .grid { stroke: var(--line); } svg .cut { stroke: var(--bg); stroke-width: 2; }
svg .wait { fill: var(--wait); } svg .queue { fill: var(--queue); } svg .tool { fill: url(#h-tool); }
svg .first { fill: url(#h-first); } svg .decode { fill: var(--decode); } svg .pause { fill: var(--pause); }
svg .handed { stroke: var(--muted); stroke-width: 1; } svg .handed.way { stroke: var(--fg); stroke-width: 2; }
svg .arrived { fill: var(--bg); stroke: var(--muted); stroke-width: 1.5; } svg .arrived.way { fill: var(--fg); stroke: var(--fg); }
svg .prefix { fill: var(--prefix); } svg .ahead { fill: url(#h-ahead); } svg .reused { fill: var(--reused); }
svg .recomputed { fill: url(#h-recomputed); } svg .full { fill: var(--full); }
.hatchings { position: absolute; width: 0; height: 0; }
.hatchings path { fill: none; stroke: var(--hatch); stroke-width: 1.5; stroke-opacity: .65; }
.hatchings .dot { fill: var(--hatch); fill-opacity: .8; }
footer { margin-top: 3rem; padding-top: .8rem; border-top: 1px solid var(--line); color: var(--muted); font-size: .88rem; }
@media (max-width: 60rem) {
  .tiles { grid-template-columns: repeat(3, 1fr); }
}
@media (max-width: 40rem) {
  body { padding: 1rem .8rem 3rem; }
  .tiles { grid-template-columns: repeat(2, 1fr); }
  .wide { display: none; }
}
@media print {
  :root { color-scheme: light; --bg: #ffffff; --fg: #000000; --muted: #444444; --line: #bbbbbb; --card: #ffffff; --link: #000000;
    --hatch: #ffffff; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  html { font-size: 11px; }
  body { max-width: none; padding: 0; font-size: 1rem; }
  nav { display: none; }
  pre, .scroll { max-height: none; overflow: visible; }
  .turn, .picture, tr, .tiles div { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
)css";
}

Markup report_hatchings() {
  return R"svg(<svg class="hatchings" aria-hidden="true"><defs>
<pattern id="h-first" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" style="fill:var(--first)"/><path d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5"/></pattern>
<pattern id="h-recomputed" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" style="fill:var(--recomputed)"/><path d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5"/></pattern>
<pattern id="h-tool" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" style="fill:var(--tool)"/><circle class="dot" cx="3" cy="3" r="1.2"/></pattern>
<pattern id="h-ahead" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" style="fill:var(--ahead)"/><path d="M0 3H6"/></pattern>
</defs></svg>
)svg";
}

}  // namespace baton::cli
