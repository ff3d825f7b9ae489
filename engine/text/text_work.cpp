// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_work.h"

#include <fmt/format.h>

#include "engine/base/errors.h"

namespace baton::text {
namespace {

// A text may become 16 times as long: NFKC makes 33 bytes of the 3 of U+FDFA, and marks for blanks add to that.
constexpr std::size_t kGrowth = 16;
constexpr std::size_t kFreeBytes = 1u << 20;
// Words and what is between them: published tokenizers make up to 7 of the 3 bytes of U+FDFA.
constexpr std::size_t kPiecesPerByte = 3;
constexpr std::size_t kFreePieces = 1u << 16;
constexpr std::size_t kSymbolsPerByte = 12;  // 33 equal groups of 3 bytes, if nothing splits the text
constexpr std::size_t kUnitsPerByte = 256;
constexpr std::size_t kFreeUnits = 16'000'000;
constexpr std::size_t kMaxTokenBytes = 4096;
constexpr std::size_t kTokenUnits = 1'000'000;

}  // namespace

TextWork::TextWork(std::string_view origin, std::size_t bytes, std::stop_token stop)
    : TextWork(origin, "text", bytes,
               {kGrowth * bytes + kFreeBytes, kPiecesPerByte * bytes + kFreePieces,
                kSymbolsPerByte * bytes + kFreeBytes, kUnitsPerByte * bytes + kFreeUnits},
               std::move(stop)) {}

TextWork TextWork::of_token(std::string_view origin, std::size_t bytes, std::stop_token stop) {
  const std::size_t most = std::max(bytes, kMaxTokenBytes);
  return {origin, "token", bytes, {most, most, most, kUnitsPerByte * bytes + kTokenUnits}, std::move(stop)};
}

TextWork TextWork::of_vocabulary(std::string_view origin, std::size_t bytes, std::stop_token stop) {
  const std::size_t most = 2 * bytes + kFreeBytes;
  return {origin, "vocabulary", bytes, {most, most, most, kUnitsPerByte * bytes + kFreeUnits}, std::move(stop)};
}

void TextWork::allow(std::size_t bytes) {
  effort_.allow(kUnitsPerByte * bytes);
  for (std::size_t* limit : {&limits_.bytes, &limits_.pieces, &limits_.symbols}) *limit = std::max(*limit, bytes);
}

void TextWork::fail() const {
  if (effort_.stop_requested()) throw Interrupted();
  throw ModelError(
      fmt::format("{}: a {} of {} bytes needs more than the tokenizer's limit of steps", origin_, what_, bytes_));
}

void TextWork::fail_size(std::size_t limit, std::string_view unit) const {
  throw ModelError(
      fmt::format("{}: the tokenizer makes more than {} {} of a {} of {} bytes", origin_, limit, unit, what_, bytes_));
}

}  // namespace baton::text
