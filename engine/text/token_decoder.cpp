// SPDX-License-Identifier: Apache-2.0
#include "engine/text/token_decoder.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/base/utf8.h"
#include "engine/text/token_decoder_steps.h"

namespace baton::text {
namespace {

constexpr int kMaxDecoderDepth = 16;
constexpr std::int32_t kMaxStrip = 1024;

std::string character_member(const Json& value, const char* key, const Where& where) {
  const std::string text = string_member(value, key, where);
  if (text.empty() || utf8::at(text, 0).bytes != text.size()) where.fail(fmt::format("'{}' must be a character", key));
  return text;
}

}  // namespace

TokenDecoder TokenDecoder::parse(const Json* value, const Where& where) {
  TokenDecoder out;
  if (value != nullptr) {
    out.add(*value, where, 0);
  } else {
    out.steps_.push_back(spaced_step());
  }
  return out;
}

void TokenDecoder::add(const Json& value, const Where& where, int depth) {
  check_step_count(steps_.size(), where);
  const std::string type = string_member(value, "type", where);
  if (type == "Sequence") {
    if (depth == kMaxDecoderDepth) where.fail("too many sequences inside each other");
    std::size_t i = 0;
    for (const Json& part : array_member(value, "decoders", where)) {
      add(part, where.in("decoders").in(i++), depth + 1);
    }
    return;
  }
  if (type == "Strip") {
    const auto count = [&](const char* key) {
      return static_cast<std::size_t>(index_of(member(value, key, where), kMaxStrip, where.in(key)));
    };
    steps_.push_back(strip_step(character_member(value, "content", where), count("start"), count("stop"), joined_));
    return;
  }
  if (type == "Fuse") {
    steps_.push_back(fuse_step());
    joined_ = true;
    return;
  }
  // The steps below read single tokens; after a step that joins tokens they would see pieces of arbitrary sizes.
  if (joined_)
    where.fail(fmt::format("the decoder {} after one that joins all tokens is not supported", in_quotes(type)));
  if (type == "ByteLevel") {
    steps_.push_back(byte_level_step());
    joined_ = true;
  } else if (type == "ByteFallback") {
    steps_.push_back(byte_fallback_step());
  } else if (type == "Replace") {
    steps_.push_back(replace_step(parse_pattern(member(value, "pattern", where), where.in("pattern")),
                                  string_member(value, "content", where)));
  } else if (type == "Metaspace") {
    const auto scheme = optional_string(value, "prepend_scheme", where);
    const bool prefix = scheme ? *scheme != "never" : bool_member(value, "add_prefix_space", true, where);
    steps_.push_back(metaspace_step(character_member(value, "replacement", where), prefix));
  } else {
    where.fail(fmt::format("the decoder {} is not supported", in_quotes(type)));
  }
}

std::string TokenDecoder::bytes(std::string token, TextWork& work) const {
  bool is_bytes = false;
  for (const auto& step : steps_) {
    work.spend(1 + token.size() / 16);
    token = step->bytes(std::move(token), is_bytes, work);
  }
  return token;
}

TokenDecoder::Run::Run(const TokenDecoder& decoder) {
  for (const auto& step : decoder.steps_) steps_.push_back(step->run());
}

void TokenDecoder::Run::push_from(std::size_t step, std::string_view token, std::string& out, TextWork& work) {
  if (step == steps_.size()) {
    out += token;
    return;
  }
  work.spend(1 + token.size() / 16);
  steps_[step]->push(
      token, [&](std::string_view piece) { push_from(step + 1, piece, out, work); }, work);
}

void TokenDecoder::Run::push(std::string_view token, std::string& out, TextWork& work) {
  push_from(0, token, out, work);
}

void TokenDecoder::Run::finish(std::string& out, TextWork& work) {
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    steps_[step]->finish([&](std::string_view piece) { push_from(step + 1, piece, out, work); }, work);
  }
}

}  // namespace baton::text
