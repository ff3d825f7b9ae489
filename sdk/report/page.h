// SPDX-License-Identifier: Apache-2.0
// A run, or two, as one HTML page that needs nothing else: no other file, no network, and to be read no script.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "sdk/cli/console/html.h"
#include "sdk/report/data.h"
#include "sdk/report/texts.h"

namespace baton::cli {

/// `command` makes the page again. The same record makes the same page, byte for byte.
Markup report_page(const Report& report, const std::string& command);

/// Two runs of a workflow next to each other; `names` are what the runs are called.
Markup comparison_page(const Report& first, const Report& second, const std::array<std::string, 2>& names,
                       const std::string& command);

// Their parts.

Markup graph_section(const Report& report);
Markup timeline_section(const Report& report);
Markup reuse_section(const Report& report);
Markup texts_section(const Report& report, Texts& texts);
/// Nothing where there are no texts.
Markup named_texts(const char* id, const char* title, const NamedTexts& named, Look look, Texts& texts);

// What every page carries: made of page.css, page.js, page_start.html and sdk/web by CMake.
Markup page_style();
Markup page_start();  // the bar above the page, and the hatchings that its pictures share
Markup page_script();
Markup script_policy();  // by which no other script runs

// What the parts share.

/// The whole of a page around `body`.
Markup page_of(const Markup& title, const Markup& body, const std::string& command);

Markup bdi(std::string_view text, std::size_t most = 500);

/// "analyst#2", with a link to `place` ("turn", "reuse" or "text") of that turn.
Markup turn_link(const Report& report, std::size_t turn, const char* place);

/// "ok", "failed", ... with a sign, so that the state is not shown by colour alone.
Markup state_badge(std::string_view state);

/// "12 %"; "<1 %" for small values above 0.
Markup percent(double part, double of);

struct Column {
  const char* title;
  const char* meaning;  // shown when pointed at, or ""
  enum Kind { number, name, text } kind = number;
};

/// A table that scrolls by itself where the page is too narrow.
Markup table(const Markup& caption, const std::vector<Column>& columns, const std::vector<std::vector<Markup>>& rows);

}  // namespace baton::cli
