// SPDX-License-Identifier: Apache-2.0
// The keys that a method adds to `relay:` of workflow files: each method declares its keys, of which workflows/format
// makes the format's table, and reads its own options from what a file gives.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/reuse/method.h"

namespace baton {

struct MethodKey {
  enum class Type : std::uint8_t { boolean, integer, number, number_above, choice, text, time_limit };
  static constexpr double kNoLimit = std::numeric_limits<std::int32_t>::max();

  std::string name;  // "tolerance"; in a section: "select.share"
  Type type = Type::boolean;
  double low = 0.0, high = kNoLimit;  // of numbers; number_above: `low` itself is not allowed
  std::vector<std::string> words;     // of a choice
  std::string standard;               // the default, as the documents say it
  std::string doc;
  /// The key stands under `relay.lab`, which only programs with the laboratory accept (register_lab_methods).
  bool lab = false;
  bool only_here = false;  // an error if the file's method has no such key; otherwise it is ignored then
};

/// What a file gives under `relay`. Values have the type that the key declares.
class GivenKeys {
 public:
  virtual ~GivenKeys() = default;
  virtual bool has(std::string_view name) const = 0;
  virtual std::optional<std::string> text(std::string_view name) const = 0;
  virtual std::optional<std::int64_t> integer(std::string_view name) const = 0;
  virtual std::optional<float> number(std::string_view name) const = 0;
  virtual std::optional<bool> boolean(std::string_view name) const = 0;
  virtual std::optional<double> milliseconds(std::string_view name) const = 0;
  /// Reports a mistake at a key that is there.
  virtual void error(std::string_view name, const std::string& message, const std::string& help = {}) = 0;

  /// Reports those of the keys that are given although another setting leaves them without an effect.
  void refuse(std::initializer_list<std::string_view> names, const std::string& because);
};

/// Reads the keys of options.method into its options.
void read_keys(GivenKeys& given, ReuseOptions& options);

/// `reuse`, for the methods that choose tokens.
MethodKey reuse_key();

}  // namespace baton
