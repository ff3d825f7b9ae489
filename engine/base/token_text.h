// SPDX-License-Identifier: Apache-2.0
// TokenText: the token ids of one text, from the piece of a prompt to the segment of its KV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace baton {

/// Immutable. Copies share the ids, and a comparison of copies reads none of them; other texts are compared by content.
class TokenText {
 public:
  TokenText() = default;
  TokenText(std::vector<std::int32_t> ids)  // NOLINT(google-explicit-constructor): ids are a text
      : ids_(ids.empty() ? nullptr : std::make_shared<const std::vector<std::int32_t>>(std::move(ids))) {}
  TokenText(std::initializer_list<std::int32_t> ids) : TokenText(std::vector<std::int32_t>(ids)) {}

  const std::vector<std::int32_t>& ids() const {
    static const std::vector<std::int32_t> none;
    return ids_ ? *ids_ : none;
  }
  operator const std::vector<std::int32_t>&() const { return ids(); }  // NOLINT(google-explicit-constructor)

  std::size_t size() const { return ids().size(); }
  bool empty() const { return ids_ == nullptr; }
  const std::int32_t* data() const { return ids().data(); }
  auto begin() const { return ids().begin(); }
  auto end() const { return ids().end(); }
  std::int32_t front() const { return ids().front(); }
  std::int32_t back() const { return ids().back(); }
  std::int32_t operator[](std::size_t i) const { return ids()[i]; }

  /// True if one is a copy of the other: equal without a look at the ids.
  bool is(const TokenText& other) const { return ids_ == other.ids_; }

  friend bool operator==(const TokenText& a, const TokenText& b) { return a.is(b) || a.ids() == b.ids(); }
  friend bool operator==(const TokenText& a, const std::vector<std::int32_t>& b) { return a.ids() == b; }

 private:
  std::shared_ptr<const std::vector<std::int32_t>> ids_;  // null: empty
};

}  // namespace baton
