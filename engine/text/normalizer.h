// SPDX-License-Identifier: Apache-2.0
// The "normalizer" of tokenizer.json: what happens to the text before it is cut into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer_json.h"

namespace baton::text {

/// Immutable; safe from any thread.
class Normalizer {
 public:
  /// `value` may be null: nothing is done.
  static Normalizer parse(const Json* value, const Where& where);

  bool changes_nothing() const { return steps_.empty(); }
  /// `text` is valid UTF-8. `keeps_start` becomes false when characters at the start were taken away.
  std::string apply(std::string_view text, bool& keeps_start) const;

  struct Step {
    virtual ~Step() = default;
    virtual void apply(std::string& text, bool& keeps_start) const = 0;
  };

 private:
  void add(const Json& value, const Where& where, int depth);

  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace baton::text
