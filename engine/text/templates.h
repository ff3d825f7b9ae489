// SPDX-License-Identifier: Apache-2.0
// Texts in Jinja: chat templates, and expressions over the values of a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/thinking.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// A call of a tool, in a message of the assistant.
struct ChatCall {
  std::string id;
  std::string name;
  std::string arguments;  // a JSON object
  bool as_text = false;   // the template gets the arguments as a text
  bool operator==(const ChatCall&) const = default;
};

/// Bytes of a text that come from a value: from something that neither a chat template nor the author of a prompt
/// wrote.
struct ValueSpan {
  std::size_t begin = 0;  // in the text
  std::size_t end = 0;
  std::size_t value = 0;    // which value
  std::size_t offset = 0;   // of the first byte, in the value
  bool is_verbatim = true;  // the bytes are those of the value from `offset` on, not changed ones
  bool operator==(const ValueSpan&) const = default;
};

/// A text and what in it comes from values, in the order of the text.
struct ChatText {
  std::string text;
  std::vector<ValueSpan> values = {};
};

struct ChatMessage {
  std::string role;  // system, user, assistant, tool
  std::string content;
  std::vector<ChatCall> calls = {};    // for an assistant
  std::string name = {};               // for a tool: whose result the content is
  std::string call_id = {};            // for a tool: ChatCall::id
  std::string thinking = {};           // of an assistant, in front of the content; a template may leave it out
  std::vector<ValueSpan> values = {};  // what in the content comes from values; the content is valid UTF-8 then
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string bos_token;
  std::string eos_token;
  /// Further variables by name, each a value in JSON: {"enable_thinking", "false"}.
  std::vector<std::pair<std::string, std::string>> variables;
  /// What strftime_now shows: the local time in seconds since 1970-01-01 00:00 of the same clock; none: the host's.
  std::optional<std::int64_t> local_seconds = std::nullopt;
  /// Messages that the template does not take (RoleRules) are merged into others: a system text stands in front of the
  /// next user message, and messages of one role in a row are one; a blank line is between the texts.
  bool merges_roles = false;
  /// What the assistant may call, each a JSON object {"name", "description", "parameters"}, its keys in this order.
  std::vector<std::string> tools;
};

/// Which messages a chat template refuses or leaves out.
struct RoleRules {
  bool no_system = false;         // system messages
  bool no_second_system = false;  // a second system message behind a first one
  bool no_later_system = false;   // system messages behind others
  bool no_repeats = false;        // two messages of one role in a row
  bool operator==(const RoleRules&) const = default;
};

/// The host's local time now, as ChatOptions::local_seconds, and such a time as text: "2026-01-31T13:00:00".
std::int64_t local_seconds_now();
std::string local_time_text(std::int64_t local_seconds);
/// Nothing for another text, and for years but 1 to 9999.
std::optional<std::int64_t> local_seconds_of(std::string_view text);

/// Immutable after parse and safe from any thread.
class ChatTemplate {
 public:
  /// Throws ModelError with line and column of an invalid or unsupported construct.
  static std::shared_ptr<const ChatTemplate> parse(std::string_view source, const std::string& origin);

  virtual ~ChatTemplate() = default;

  /// Its text in Jinja; empty: it is not written in Jinja.
  virtual std::string source() const { return {}; }

  /// Throws ModelError for the template's own raise_exception, a member of an unknown variable, too many steps, or
  /// tools or arguments that are no JSON objects, and Interrupted soon after a stop was requested. Time, memory and
  /// stack are bounded whatever the template does.
  virtual std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                             const std::stop_token& stop = {}) const = 0;

  /// Found by rendering a few made-up messages, the first time that it is asked for. Throws Interrupted.
  virtual RoleRules role_rules(const ChatOptions& /*options*/, const std::stop_token& /*stop*/ = {}) const {
    return {};
  }

  /// As `render`, and where the values of the messages stand in the text, whatever the template does to them. Nothing
  /// if this kind of template cannot tell.
  virtual std::optional<ChatText> render_values(const std::vector<ChatMessage>& /*messages*/,
                                                const ChatOptions& /*options*/,
                                                const std::stop_token& /*stop*/ = {}) const {
    return std::nullopt;
  }
};

// ModelText: the text side of a model, which is all that building a prompt needs (agents/prompt.h).

/// The identity of a model, and the conversion of messages to token ids and of token ids to text.
struct ModelText {
  std::filesystem::path path;  // for messages and records
  std::string fingerprint;     // hash of configuration, headers and a sample of the weights; empty: weights not opened
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the model has none
  ChatOptions chat_options;                           // BOS and EOS as text
  std::optional<ThinkingForm> thinking;               // how the model thinks; nothing: it does not, as far as known
  std::vector<std::string> warnings;                  // what speaks against the tokenizer, for the user
};

// Expressions over named values, for the conditions of workflows: those of Jinja ("score >= 4 and 'done' in text"),
// read and evaluated as in chat templates, within the same bounds, but that what is undefined equals nothing.

/// What a name stands for.
struct NamedValue {
  enum class Kind : std::uint8_t { undefined, text, json, integer };
  Kind kind = Kind::undefined;
  std::string_view text;     // for text and json; valid until the next look-up
  std::int64_t integer = 0;  // for integer
};

/// A text is no expression, or the values do not fit it. what() has no place in it.
class ExpressionError : public std::runtime_error {
 public:
  ExpressionError(const std::string& reason, std::size_t where) : std::runtime_error(reason), byte(where) {}
  std::size_t byte;  // offset in the text of the expression
};

/// Immutable and safe from any thread.
class ValueExpression {
 public:
  /// Throws ExpressionError.
  explicit ValueExpression(std::string_view source);
  ~ValueExpression();
  ValueExpression(ValueExpression&&) noexcept;
  ValueExpression& operator=(ValueExpression&&) noexcept;

  /// A name that the expression reads, and the members of it that must exist: "scores" and "0" in answer.scores[0] > 3,
  /// none in answer.score is defined.
  struct Name {
    std::string name;
    std::vector<std::string> members;
    bool numbered = false;  // the first member is a number: an element of a list, not a name
    std::size_t byte = 0;   // offset in the text
  };
  /// In the order of the text; a name stands there each time that it is read.
  const std::vector<Name>& names() const;
  const std::string& source() const;

  /// Whether the expression is true for these values, in Jinja's sense. `value_of` is asked once for each name. Throws
  /// ExpressionError if the values do not fit (a text compared with a number, a member of an undefined value), and
  /// after about 0.2 s.
  bool holds(const std::function<NamedValue(const std::string& name)>& value_of) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace baton
