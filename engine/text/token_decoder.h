// SPDX-License-Identifier: Apache-2.0
// The "decoder" of tokenizer.json: a chain of steps that tokens pass through one by one, so that the same code decodes
// a growing text and a whole text. All steps share the bounds of a token.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer_steps.h"

namespace baton::text {

using Emit = std::function<void(std::string_view)>;

/// The state of one step while one text is decoded.
class DecoderRun {
 public:
  virtual ~DecoderRun() = default;
  virtual void push(std::string_view token, const Emit& emit, TextWork& work) = 0;
  virtual void finish(const Emit&, TextWork&) {}
};

/// Immutable and safe from any thread.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual std::unique_ptr<DecoderRun> run() const = 0;
  /// Returns the bytes of a token in the middle of a text after this step. `is_bytes`: an earlier step already resolved
  /// the token to bytes.
  virtual std::string bytes(std::string token, bool& is_bytes, TextWork& work) const = 0;
};

class TokenDecoder {
 public:
  /// A null `value` joins tokens with spaces. Throws ModelError.
  static TokenDecoder parse(const Json* value, const Where& where);

  /// The chain of all steps for one text.
  class Run {
   public:
    explicit Run(const TokenDecoder& decoder);
    /// Adds a token and appends the text that became final. Throws as TextWork does.
    void push(std::string_view token, std::string& out, TextWork& work);
    void finish(std::string& out, TextWork& work);

   private:
    void push_from(std::size_t step, std::string_view token, std::string& out, TextWork& work);
    std::vector<std::unique_ptr<DecoderRun>> steps_;
  };

  /// Returns the bytes of a token in the middle of a text. Throws as TextWork does.
  std::string bytes(std::string token, TextWork& work) const;

 private:
  void add(const Json& value, const Where& where, int depth);

  std::vector<std::shared_ptr<const DecoderStep>> steps_;
  bool joined_ = false;  // an earlier step joins all tokens to one
};

}  // namespace baton::text
