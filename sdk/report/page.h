// SPDX-License-Identifier: Apache-2.0
// A run as one HTML page that needs nothing else: no script, no other file, no network.
#pragma once

#include <string>
#include <vector>

#include "sdk/cli/console/html.h"
#include "sdk/report/data.h"

namespace baton::cli {

/// `command` makes the page again. The same record makes the same page, byte for byte.
Markup report_page(const Report& report, const std::string& command);

// Its parts.

/// What every page carries in its <style>, and the hatchings that its pictures share.
Markup report_style();
Markup report_hatchings();

Markup timeline_section(const Report& report);
Markup reuse_section(const Report& report);

// What the parts share.

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
