// SPDX-License-Identifier: Apache-2.0
// NamedTexts: texts by name in a fixed order, as a run record holds its inputs and outputs. Plain data.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

/// A map from names to texts that keeps the order in which the names were added; of a run record that of the workflow's
/// file. Lookups are linear: a workflow has few names.
class NamedTexts {
 public:
  using value_type = std::pair<std::string, std::string>;
  using const_iterator = std::vector<value_type>::const_iterator;

  NamedTexts() = default;
  NamedTexts(std::initializer_list<value_type> texts);
  /// Takes texts whose names differ as they are, without comparing them.
  explicit NamedTexts(std::vector<value_type> distinct) : texts_(std::move(distinct)) {}

  /// Throws std::out_of_range, with the names that there are.
  const std::string& at(std::string_view name) const;
  /// The text of a name, which is added behind the others when it is new.
  std::string& operator[](std::string_view name);
  const_iterator find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != end(); }
  std::size_t count(std::string_view name) const { return contains(name) ? 1 : 0; }

  const_iterator begin() const { return texts_.begin(); }
  const_iterator end() const { return texts_.end(); }
  std::size_t size() const { return texts_.size(); }
  bool empty() const { return texts_.empty(); }
  void clear() { texts_.clear(); }

  /// True when both have the same names with the same texts in the same order.
  bool operator==(const NamedTexts&) const = default;

 private:
  std::vector<value_type> texts_;
};

}  // namespace baton
