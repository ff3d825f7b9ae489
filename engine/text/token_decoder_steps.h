// SPDX-License-Identifier: Apache-2.0
// The steps of a decoder. `joined`: the input consists of pieces of one long token instead of tokens.
#pragma once

#include "engine/text/text_pattern.h"
#include "engine/text/token_decoder.h"

namespace baton::text {

using StepPtr = std::shared_ptr<const DecoderStep>;

StepPtr spaced_step();
StepPtr byte_level_step();
StepPtr byte_fallback_step();
StepPtr fuse_step();
StepPtr replace_step(PatternPtr pattern, std::string content);
/// Removes `content` (one character) up to `start` times at the start of a token and up to `stop` times at its end.
StepPtr strip_step(std::string content, std::size_t start, std::size_t stop, bool joined);
/// `first_is_prefix`: marks in the first token are removed instead of replaced by spaces.
StepPtr metaspace_step(std::string mark, bool first_is_prefix);

}  // namespace baton::text
