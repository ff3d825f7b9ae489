// SPDX-License-Identifier: Apache-2.0
// The single steps of a decoder. `joined`: what arrives are pieces of one long token, not tokens.
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
/// Takes away up to `start` times `content` (one character) at the start and `stop` times at the end of a token.
StepPtr strip_step(std::string content, std::size_t start, std::size_t stop, bool joined);
/// `first_is_prefix`: marks in the first token stand for nothing.
StepPtr metaspace_step(std::string mark, bool first_is_prefix);

}  // namespace baton::text
