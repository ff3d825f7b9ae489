// SPDX-License-Identifier: Apache-2.0
// Where two texts differ, word by word.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/console/html.h"
#include "sdk/report/data.h"

namespace baton::cli {

struct TextPart {
  std::string_view text;
  bool same = false;  // it stands in the other text, too
};

struct TextDifference {
  std::vector<TextPart> first, second;  // all of either text, in order
};

/// Compares texts of one page. Longest common subsequences take the product of two lengths; when their sum has reached
/// a limit, what was left to compare counts as different.
class Differences {
 public:
  /// The views are into the texts.
  TextDifference between(std::string_view first, std::string_view second);

 private:
  using Words = std::vector<std::string_view>;
  using Pieces = bool (*)(char before, char now);  // true: a new piece begins at `now`

  static Words split(std::string_view text, Pieces begins);
  /// Marks what is common of the two, piece by piece; if pieces are lines, what is left of them word by word.
  void compare(const Words& first, const Words& second, bool lines, TextDifference& out);

  std::size_t cells_left_ = 200'000'000;
};

// A run, or two, as one HTML page that needs nothing else: no other file, no network, and to be read no script. Its
// texts are prompts, answers, and what tools were given and returned.

/// How the page's script shows a text that stands in the page as it was written.
enum class Look { plain, markdown, json, python };

/// The texts of one page, until there is no more room.
class Texts {
 public:
  /// `size` is that of the whole text, of which `bytes` may be the beginning; `elsewhere` is where the whole of it is.
  Markup block(std::string_view bytes, std::uint64_t size, const std::string& elsewhere, Look look);
  /// Of a whole text in run.json.
  Markup block(std::string_view text, Look look) { return block(text, text.size(), "run.json", look); }
  /// Of a text of `size` bytes in run.json, of which `parts` are the beginning: what is not the same in `tag`.
  Markup marked(const std::vector<TextPart>& parts, std::uint64_t size, const char* tag);

 private:
  static Markup rest(std::size_t shown, std::uint64_t size, const std::string& elsewhere);

  std::size_t room_ = kMaxAllTextsBytes;
};

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
/// Nothing if there are no texts.
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

/// A table that scrolls by itself if the page is too narrow.
Markup table(const Markup& caption, const std::vector<Column>& columns, const std::vector<std::vector<Markup>>& rows);

}  // namespace baton::cli
