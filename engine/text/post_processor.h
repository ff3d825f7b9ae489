// SPDX-License-Identifier: Apache-2.0
// The "post_processor" of tokenizer.json: the tokens around a single text, such as a BOS.
#pragma once

#include <vector>

#include "engine/text/vocabulary.h"

namespace baton::text {

struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

/// `value` may be null: no tokens.
PostProcessor parse_post_processor(const Json* value, const Vocabulary& vocabulary, const Where& where);

}  // namespace baton::text
