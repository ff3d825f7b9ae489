// SPDX-License-Identifier: Apache-2.0
// The "decoder" of tokenizer.json as a chain of steps through which tokens flow one by one, so that a growing text and
// a whole one are decoded by the same code.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer_json.h"

namespace baton::text {

using Emit = std::function<void(std::string_view)>;

/// The state of one step in one run.
class DecoderRun {
 public:
  virtual ~DecoderRun() = default;
  virtual void push(std::string_view token, const Emit& emit) = 0;
  virtual void finish(const Emit&) {}
};

/// Immutable; safe from any thread.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual std::unique_ptr<DecoderRun> run() const = 0;
  /// What the step makes of a token in the middle of a text, as bytes. `is_bytes`: an earlier step resolved them.
  virtual std::string bytes(std::string token, bool& is_bytes) const = 0;
};

class TokenDecoder {
 public:
  /// `value` may be null: tokens are joined with spaces.
  static TokenDecoder parse(const Json* value, const Where& where);

  /// All steps of one text in a row.
  class Run {
   public:
    explicit Run(const TokenDecoder& decoder);
    /// Appends the text that became final.
    void push(std::string_view token, std::string& out);
    void finish(std::string& out);

   private:
    void push_from(std::size_t step, std::string_view token, std::string& out);
    std::vector<std::unique_ptr<DecoderRun>> steps_;
  };

  std::string bytes(std::string token) const;

 private:
  void add(const Json& value, const Where& where, int depth);

  std::vector<std::shared_ptr<const DecoderStep>> steps_;
  bool joined_ = false;  // an earlier step makes one token of all
};

}  // namespace baton::text
