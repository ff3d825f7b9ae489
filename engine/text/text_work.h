// SPDX-License-Identifier: Apache-2.0
// TextWork: the bounds of encoding one text. Every step of a tokenizer counts the bytes and attempts that it spends
// here.
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
  /// For one token that is decoded.
  static TextWork of_token(std::string_view origin, std::size_t bytes);

  /// Throws ModelError when the text needs more than its limit, and Interrupted after a stop was requested.
  void spend(std::size_t units) {
    if (!effort_.take(units)) fail();
  }
  /// For callbacks that cannot throw; when it returns false, `fail` says why.
  [[nodiscard]] bool take(std::size_t units) noexcept { return effort_.take(units); }
  [[noreturn]] void fail() const;

  /// Throws ModelError for a rewritten text that has grown beyond what the text's size allows.
  void check_size(std::size_t bytes) const {
    if (bytes > max_bytes_) fail_size();
  }

 private:
  TextWork(std::string_view origin, std::size_t bytes, std::size_t max_bytes, std::size_t units, std::stop_token stop)
      : effort_(units, std::move(stop)), origin_(origin), bytes_(bytes), max_bytes_(max_bytes) {}
  [[noreturn]] void fail_size() const;

  Effort effort_;
  std::string_view origin_;
  std::size_t bytes_;
  std::size_t max_bytes_;
};

}  // namespace baton::text
