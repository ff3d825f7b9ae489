// SPDX-License-Identifier: Apache-2.0
// A run as one HTML page that needs nothing else: no script, no other file, no network.
#pragma once

#include <string>
#include <vector>

#include "sdk/report/data.h"

namespace baton::cli {

/// `command` makes the page again. The same record makes the same page, byte for byte.
std::string report_page(const Report& report, const std::string& command);

// Its parts.

/// What every page carries in its <style>, and the hatchings that its pictures share.
const char* report_style();
const char* report_hatchings();

std::string timeline_section(const Report& report);
std::string reuse_section(const Report& report);

// What the parts share.

/// "analyst#2", with a link to `place` ("turn", "reuse" or "text") of that turn.
std::string turn_link(const Report& report, std::size_t turn, const char* place);

/// "ok", "failed", ... with a sign, so that it is not the colour alone that says it.
std::string state_badge(std::string_view state);

/// "12 %"; "<1 %" for what is not nothing.
std::string percent(double part, double of);

struct Column {
  const char* title;
  const char* meaning;  // shown when pointed at, or ""
  enum Kind { number, name, text } kind = number;
};

/// A table that scrolls by itself where the page is too narrow. Cells are markup.
std::string table(const std::string& caption, const std::vector<Column>& columns,
                  const std::vector<std::vector<std::string>>& rows);

}  // namespace baton::cli
