// SPDX-License-Identifier: Apache-2.0
// The "normalizer" of tokenizer.json, which changes the text before it is split into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/text_work.h"
#include "engine/text/tokenizer_json.h"

namespace baton::text {

/// Immutable and safe from any thread.
class Normalizer {
 public:
  /// A null `value` makes a normalizer that does nothing. Throws ModelError.
  static Normalizer parse(const Json* value, const Where& where);

  bool changes_nothing() const { return steps_.empty(); }
  /// Returns the normalised text. `text` must be valid UTF-8. Sets `keeps_start` to false when characters at the start
  /// were removed. Throws ModelError for a text that grows too long or needs too many steps.
  std::string apply(std::string_view text, bool& keeps_start, TextWork& work) const;

  struct Step {
    virtual ~Step() = default;
    virtual void apply(std::string& text, bool& keeps_start, TextWork& work) const = 0;
  };

 private:
  void add(const Json& value, const Where& where, int depth);

  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace baton::text
