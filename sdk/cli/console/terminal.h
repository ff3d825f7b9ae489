// SPDX-License-Identifier: Apache-2.0
// What the two output streams are, and how to write on them.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/system/terminal.h"

namespace baton::cli {

bool stdout_is_terminal();
bool stderr_is_terminal();

/// A terminal on stderr that can move its cursor (TERM is not "dumb").
bool can_redraw();

/// Colours on stderr: a terminal, and neither NO_COLOR nor TERM=dumb.
bool use_colour();

/// The terminal reads UTF-8, as far as the locale says; true when the locale says nothing.
bool terminal_is_utf8();

enum class Style { plain, bold, dim, red, green, yellow, blue, cyan };

/// `text` with the style around it where `use_colour()`.
std::string styled(Style style, std::string_view text);

/// A warning as one line, with its line end.
std::string warning_line(std::string_view message);

/// To stderr, all at once.
void note(std::string_view text);

/// To stdout, flushed, and not cut by a second Ctrl-C. Agents' text is made printable when stdout is a terminal, and is
/// left as it is otherwise.
void result(std::string_view text);

/// `text` made printable for stdout's terminal, with the style around it where that shows colours; in a pipe or a file
/// as it is.
std::string coloured(Style style, std::string_view text);

/// To stdout like `result`, of texts that `coloured` made.
void coloured_result(std::string_view text);

/// Throws Failure when something written to stdout did not arrive.
void check_stdout();

}  // namespace baton::cli
