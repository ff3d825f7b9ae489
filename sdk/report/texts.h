// SPDX-License-Identifier: Apache-2.0
// Texts of a page: prompts, answers, what tools were given and returned.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/cli/console/html.h"
#include "sdk/report/data.h"
#include "sdk/report/difference.h"

namespace baton::cli {

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

}  // namespace baton::cli
