// SPDX-License-Identifier: Apache-2.0
// All steps of a tokenizer share these: reading tokenizer.json with errors that say where, and TextWork, the bounds of
// encoding one text or of decoding tokens.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/errors.h"

namespace baton {
class Tokenizer;
}

namespace baton::text {

using Json = nlohmann::json;

struct Where {
  std::string origin;
  std::string path;

  Where in(std::string_view key) const;
  Where in(std::size_t index) const;
  /// Throws ModelError.
  [[noreturn]] void fail(std::string_view what) const;
};

/// The member, or nullptr when it is missing or null. Fails when `object` is not an object.
const Json* find(const Json& object, const char* key, const Where& where);
/// The member; fails when it is missing or null.
const Json& member(const Json& object, const char* key, const Where& where);

std::string string_member(const Json& object, const char* key, const Where& where);
std::optional<std::string> optional_string(const Json& object, const char* key, const Where& where);
bool bool_member(const Json& object, const char* key, bool otherwise, const Where& where);
/// A whole number in [0, limit).
std::int32_t index_of(const Json& value, std::int32_t limit, const Where& where);
const Json& array_member(const Json& object, const char* key, const Where& where);

struct BpeTables;

/// Tokenizer::parse of a tokenizer.json that is a value already, but for its "vocab" and "merges", which are `tables`;
/// `identity`: Tokenizer::identity.
std::shared_ptr<const Tokenizer> make_tokenizer(const Json& json, const BpeTables& tables, const std::string& origin,
                                                std::uint64_t identity);

/// Fails when a normalizer, pre_tokenizer or decoder has more steps than any tokenizer needs.
void check_step_count(std::size_t steps, const Where& where);

/// A string for error messages, shortened.
std::string in_quotes(std::string_view text);

// TextWork: the bounds of encoding one text, or of decoding tokens. Every step of a tokenizer counts the bytes and
// attempts that it spends here.

/// One thread at a time. `origin` must outlive it.
class TextWork {
 public:
  /// For a text of `bytes`. Published tokenizers spend up to 40 units on a byte; one takes about 5 ns.
  TextWork(std::string_view origin, std::size_t bytes, std::stop_token stop = {});
  /// For one token that is decoded, by all steps of a decoder together.
  static TextWork of_token(std::string_view origin, std::size_t bytes, std::stop_token stop = {});
  /// For decoding each token of a vocabulary by itself: `bytes` of all tokens. It may take as long as encoding a text
  /// of that size. The result may be twice as long and 1 MiB; published decoders make it shorter.
  static TextWork of_vocabulary(std::string_view origin, std::size_t bytes, std::stop_token stop);

  /// Throws ModelError when the text needs more than its limit, and Interrupted after a stop was requested.
  void spend(std::size_t units) {
    if (!effort_.take(units)) fail();
  }
  /// For callbacks that cannot throw; when it returns false, `fail` says why.
  [[nodiscard]] bool take(std::size_t units) noexcept { return effort_.take(units); }
  [[noreturn]] void fail() const;
  std::size_t spent() const noexcept { return effort_.used(); }

  /// Allows for what a decoder had held back, which is decoded with the token.
  void allow(std::size_t bytes);

  /// Throws ModelError for a rewritten text that has grown beyond what the text's size allows.
  void check_size(std::size_t bytes) const {
    if (bytes > limits_.bytes) fail_size(limits_.bytes, "bytes");
  }
  /// Throws ModelError for more matches, spans or words, of about 24 bytes each, than the text's size allows.
  void check_pieces(std::size_t pieces) const {
    if (pieces > limits_.pieces) fail_size(limits_.pieces, "pieces");
  }
  /// Throws ModelError for more symbols of one word, of about 28 bytes each, than the text's size allows.
  void check_symbols(std::size_t symbols) const {
    if (symbols > limits_.symbols) fail_size(limits_.symbols, "symbols of one word");
  }

 private:
  struct Limits {
    std::size_t bytes;
    std::size_t pieces;
    std::size_t symbols;
    std::size_t units;
  };
  TextWork(std::string_view origin, std::string_view what, std::size_t bytes, Limits limits, std::stop_token stop)
      : effort_(limits.units, std::move(stop)), origin_(origin), what_(what), bytes_(bytes), limits_(limits) {}
  [[noreturn]] void fail_size(std::size_t limit, std::string_view unit) const;

  Effort effort_;
  std::string_view origin_;
  std::string_view what_;  // is bounded; for messages
  std::size_t bytes_;
  Limits limits_;
};

}  // namespace baton::text
