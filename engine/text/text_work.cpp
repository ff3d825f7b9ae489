// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_work.h"

#include <fmt/format.h>

#include "engine/base/errors.h"

namespace baton::text {
namespace {

// A text may become 16 times as long: NFKC makes 33 bytes of the 3 of U+FDFA, and marks for blanks add to that.
constexpr std::size_t kGrowth = 16;
constexpr std::size_t kFreeBytes = 1u << 20;
constexpr std::size_t kUnitsPerByte = 256;
constexpr std::size_t kFreeUnits = 16'000'000;
constexpr std::size_t kMaxTokenBytes = 4096;
constexpr std::size_t kTokenUnits = 1'000'000;

}  // namespace

TextWork::TextWork(std::string_view origin, std::size_t bytes, std::stop_token stop)
    : TextWork(origin, "text", bytes, {kGrowth * bytes + kFreeBytes, kUnitsPerByte * bytes + kFreeUnits},
               std::move(stop)) {}

TextWork TextWork::of_token(std::string_view origin, std::size_t bytes, std::stop_token stop) {
  return {
      origin, "token", bytes, {std::max(bytes, kMaxTokenBytes), kUnitsPerByte * bytes + kTokenUnits}, std::move(stop)};
}

TextWork TextWork::of_vocabulary(std::string_view origin, std::size_t bytes, std::stop_token stop) {
  return {origin, "vocabulary", bytes, {2 * bytes + kFreeBytes, kUnitsPerByte * bytes + kFreeUnits}, std::move(stop)};
}

void TextWork::allow(std::size_t bytes) {
  effort_.allow(kUnitsPerByte * bytes);
  max_bytes_ = std::max(max_bytes_, bytes);
}

void TextWork::fail() const {
  if (effort_.stop_requested()) throw Interrupted();
  throw ModelError(
      fmt::format("{}: a {} of {} bytes needs more than the tokenizer's limit of steps", origin_, what_, bytes_));
}

void TextWork::fail_size() const {
  throw ModelError(fmt::format("{}: the tokenizer makes more than {} bytes of a {} of {} bytes", origin_, max_bytes_,
                               what_, bytes_));
}

}  // namespace baton::text
