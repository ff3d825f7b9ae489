// SPDX-License-Identifier: Apache-2.0
// The "post_processor" of tokenizer.json, which adds tokens around a single text, such as a BOS.
#pragma once

#include <vector>

#include "engine/text/vocabulary.h"

namespace baton::text {

struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

/// A null `value` adds no tokens. Throws ModelError.
PostProcessor parse_post_processor(const Json* value, const Vocabulary& vocabulary, const Where& where);

}  // namespace baton::text
