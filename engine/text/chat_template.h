// SPDX-License-Identifier: Apache-2.0
// Chat templates: the subset of Jinja that the official templates of the supported families use, rendered exactly as
// Transformers renders it. A construct outside of the subset is an error, never a wrong prompt.
#pragma once

#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"

namespace baton {

/// A call of a tool, in a message of the assistant.
struct ChatCall {
  std::string id;
  std::string name;
  std::string arguments;  // a JSON object
};

struct ChatMessage {
  std::string role;  // system, user, assistant, tool
  std::string content;
  std::vector<ChatCall> calls = {};  // for an assistant
  std::string name = {};             // for a tool: whose result the content is
  std::string call_id = {};          // for a tool: ChatCall::id
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  std::vector<std::pair<std::string, bool>> flags;  // further variables, for example {"enable_thinking", false}
  /// What the assistant may call, each a JSON object {"name", "description", "parameters"}, its keys in this order.
  std::vector<std::string> tools;
};

/// Immutable after parse and safe from any thread.
class ChatTemplate {
 public:
  /// Throws ModelError with line and column of an invalid or unsupported construct.
  static std::shared_ptr<const ChatTemplate> parse(std::string_view source, const std::string& origin);

  virtual ~ChatTemplate() = default;

  /// Throws ModelError for the template's own raise_exception, a member of an unknown variable, too many steps, or
  /// tools or arguments that are no JSON objects, and Interrupted soon after a stop was requested. Time, memory and
  /// stack are bounded whatever the template does.
  virtual std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                             const std::stop_token& stop = {}) const = 0;
};

// ModelText: the text side of a model, which is all that building a prompt needs (agents/prompt.h).

/// The identity of a model, and the conversion of messages to token ids and of token ids to text.
struct ModelText {
  std::filesystem::path path;  // for messages and records
  std::string fingerprint;     // hash of configuration, headers and a sample of the weights; empty: weights not opened
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the model has none
  ChatOptions chat_options;                           // BOS and EOS as text
};

}  // namespace baton
