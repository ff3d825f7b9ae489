// SPDX-License-Identifier: Apache-2.0
// The keys that requests must carry.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton::serve {

/// Takes a time that depends on the texts' lengths alone.
bool equal_in_constant_time(std::string_view left, std::string_view right);

class ApiKeys {
 public:
  /// Throws InputError for a key that a header cannot carry, or with fewer than 8 characters.
  explicit ApiKeys(std::vector<std::string> keys);

  bool empty() const { return keys_.empty(); }
  /// The index of the key that the value of a header Authorization carries, "Bearer KEY" or "Basic ..." with the key as
  /// the password, as a browser sends it; nothing: it carries none of them. Compares with every key in constant time.
  std::optional<std::size_t> find(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

/// The keys in the text of a file: one a line; empty lines and those that begin with '#' are left out.
std::vector<std::string> keys_of_text(std::string_view text);

}  // namespace baton::serve
