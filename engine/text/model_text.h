// SPDX-License-Identifier: Apache-2.0
// ModelText: the text side of a model, which is all that building a prompt needs (agents/prompt.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// The identity of a model, and the conversion of messages to token ids and of token ids to text.
struct ModelText {
  std::filesystem::path path;  // for messages and records
  std::string fingerprint;     // hash of configuration, headers and a sample of the weights; empty: weights not opened
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the model has none
  ChatOptions chat_options;                           // BOS and EOS as text
};

}  // namespace baton
