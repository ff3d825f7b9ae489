// SPDX-License-Identifier: Apache-2.0
// Unicode's normal forms, in time n log n. utf8proc_map puts combining marks in order by exchanging neighbours, which
// is quadratic in the number of marks on one character: 115 s for 320 KB of two kinds of marks.
#pragma once

#include <string>
#include <string_view>

#include "engine/text/text_work.h"

namespace baton::text {

struct NormalForm {
  bool composed = false;       // C, KC
  bool compatibility = false;  // KC, KD
};

/// Returns the normal form of valid UTF-8. Characters that `tokenizers` does not know stay as they are.
std::string in_normal_form(std::string_view text, NormalForm form, TextWork& work);

}  // namespace baton::text
