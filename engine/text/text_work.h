// SPDX-License-Identifier: Apache-2.0
// TextWork: the bounds of encoding one text, or of decoding tokens. Every step of a tokenizer counts the bytes and
// attempts that it spends here.
#pragma once

#include <cstddef>
#include <stop_token>
#include <string_view>
#include <utility>

#include "engine/base/effort.h"

namespace baton::text {

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
