// SPDX-License-Identifier: Apache-2.0
// Tools, the form in which a model calls them, and the calls in an answer.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <baton/system_facts.h>
#include <baton/tool_call.h>

#include "engine/engine.h"
#include "engine/text/constrain/call_grammar.h"
#include "engine/text/templates.h"
#include "engine/text/text_ids.h"

namespace baton {

/// True for 1 to 64 of [A-Za-z0-9_.-], as OpenAI's interface and MCP have the names of tools.
bool is_tool_name(std::string_view name);

/// Returns the content of the last block between ``` fences, without the line end before the closing fence. The opening
/// fence may name a language. A block that the end of the text cuts off counts. Empty when there is no block.
std::optional<std::string> last_code_block(std::string_view text);

/// A piece of fixed text, or a slot by name.
struct PromptPiece {
  std::string text;
  std::string slot;
  bool data = false;  // fixed text whose special tokens are text
};

/// What a message of a host's conversation is besides a text.
struct MessageCalls {
  std::vector<ChatCall> calls;  // that an assistant made
  std::string answered;         // the id of the call whose result the text is, if the role is tool
  bool empty() const { return calls.empty() && answered.empty(); }
  bool operator==(const MessageCalls&) const = default;
};

struct PromptMessage {
  std::string role;  // system, user, assistant; tool
  std::vector<PromptPiece> pieces;
  MessageCalls calls = {};
  std::string tool = {};  // name of the tool for the chat template, if the role is tool
};

/// How a model is told which tools it may call, how it writes a call, and how it gets the results. All of it
/// is read off the model's own chat template; a model whose template knows no tools gets a general form.
struct ToolFormat {
  bool of_template = false;  // the chat template shows the tools, calls and results
  CallSyntax syntax;
  std::string turn_end;            // what the template writes behind the assistant's text or calls
  bool arguments_as_text = false;  // the template gets the arguments of a call as a text

  /// Special tokens stand in the form, so that answers are read with theirs (marked_answer).
  bool has_special_tokens() const;
};

/// Renders probes of the chat template. Throws Interrupted soon after a stop was requested.
ToolFormat tool_format_of(const ModelText& model, const std::stop_token& stop = {});

/// The text, in which what spells special tokens stands as special_text() writes them.
std::string marked_text(const Tokenizer& tokenizer, const std::string& text);

/// The text of an answer's tokens, in which special tokens stand as special_text() writes them.
std::string marked_answer(const Tokenizer& tokenizer, std::span<const TokenId> tokens);

/// An answer without calls as its reader gets it: without a header and special tokens.
std::string text_of_answer(const std::string& marked, const ToolFormat& format);

/// A tool as chat templates get it: a JSON object {"name", "description", "parameters"}. If the tool has a schema to be
/// shown, texts in the object that the tokenizer would take for special tokens get a blank behind their first
/// character. Throws ModelError if that does not help.
std::string tool_json(const ToolSchema& tool, const Tokenizer& tokenizer);

/// The messages and the options of the chat template that show the tools.
struct PromptWithTools {
  std::vector<PromptMessage> messages;
  std::vector<std::string> tools;  // ChatOptions::tools
};
PromptWithTools with_tools(const ModelText& model, const ToolFormat& format, std::vector<PromptMessage> messages,
                           const std::vector<ToolSchema>& tools);

/// The messages with the calls in them as the chat template, or the general form, shows them: with ids of their own,
/// and with special tokens in arguments as in tool_json. Throws ModelError for a result of no call before it.
std::vector<PromptMessage> with_calls(const ModelText& model, const ToolFormat& format,
                                      const std::vector<PromptMessage>& messages);

/// The result of a call, for the model.
struct CallResult {
  std::string tool;
  std::string text;
};

/// Returns what follows an answer that called tools: the end of its turn, the results as data, and the beginning
/// of the next answer. `start` is the place behind the answer. `texts` keeps the ids of texts; if it is null, each text
/// is encoded. Throws ModelError if the template has no place for results.
std::vector<PromptPart> after_calls(const ModelText& model, const ToolFormat& format,
                                    const std::vector<CallResult>& results, PieceStart start,
                                    const std::stop_token& stop = {}, TextIds* texts = nullptr);

// Tools that run before an agent's prompt is built, when a result fills condition_<agent>_current, or when the model
// calls them.

/// Implementations are called concurrently. A call that throws is a failed call.
class Tool {
 public:
  virtual ~Tool() = default;
  virtual std::string name() const = 0;
  /// Returns the first error in the options, or an empty text. Called when a workflow is loaded.
  virtual std::string check(const std::map<std::string, std::string>& options) const = 0;
  virtual ToolResult call(const ToolCall& call) const = 0;
  /// The description that a model sees. Without parameters, no model can call the tool.
  virtual ToolDefinition definition() const { return {}; }
  /// Returns what confines the code that call() runs, if it runs any. May throw, as call() may.
  virtual std::vector<IsolationFact> isolation() const { return {}; }
};

/// Tools by name. Const access is thread-safe; adding tools is not.
class ToolRegistry {
 public:
  /// Returns a registry with the built-in tools (python).
  static ToolRegistry with_builtins();
  void add(std::shared_ptr<const Tool> tool);  // throws std::invalid_argument for a name that is registered already
  const Tool* find(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, std::shared_ptr<const Tool>> tools_;
};

// CallableTools: the tools that the model of one agent may call, and the form of an answer that may call them.

struct CallableTool {
  ToolSchema schema;
  std::map<std::string, std::string> options;  // ToolCall::options of each call
  std::shared_ptr<const Tool> own;             // null: the registry's, by name
};

/// Whether a model has to call a tool.
enum class ToolChoice : std::uint8_t {
  automatic,
  required,  // its first answer calls one
  none,      // it sees the tools and calls none
};

struct CallLimits {
  int max_calls = 8;                         // in one turn
  std::chrono::milliseconds timeout{10000};  // for one call
  std::size_t max_bytes = 16u << 10;         // in one result
  bool enforce = true;                       // calls are decoded under a constraint
  bool repeat = false;                       // a call may be made again with the same arguments
  bool direct = false;                       // results without an error are the output
  bool fail = false;                         // a tool that fails ends the attempt; else the model reads its error
  bool approve = false;                      // the host is asked about each call
  std::vector<std::string> approve_tools{};  // or about those of these tools
  ToolChoice choice = ToolChoice::automatic;
  std::string tool = {};  // the first answer has to call this one; empty: any
  TextBefore text = TextBefore::allowed;

  bool asks() const { return approve || !approve_tools.empty(); }
  bool needs_approval(const std::string& name) const {
    return approve || std::find(approve_tools.begin(), approve_tools.end(), name) != approve_tools.end();
  }
};

/// Tools of an MCP server, which are known once it runs.
struct ServerTools {
  std::string server;
  std::vector<std::string> only;  // empty: all that it has
};

/// Safe from any thread.
class CallableTools {
 public:
  /// `answer`: what the agent's answer is without calls; null: any text. `servers`: whose tools are still to be added.
  CallableTools(std::vector<CallableTool> tools, CallLimits limits, std::shared_ptr<const Grammar> answer,
                std::vector<ServerTools> servers = {});

  const std::vector<ServerTools>& servers() const { return servers_; }
  /// Returns these tools and `more`, with no servers left to add.
  std::shared_ptr<const CallableTools> with(std::vector<CallableTool> more) const;

  const std::vector<ToolSchema>& schemas() const { return schemas_; }
  const CallLimits& limits() const { return limits_; }
  const CallableTool* find(const std::string& name) const;

  /// The grammar of an answer with at most `calls_left` more calls; `first`: of the first answer. Null: anything may be
  /// decoded, since nothing is enforced. The same arguments give the same object. Throws ConstraintError.
  std::shared_ptr<const Grammar> grammar(const ToolFormat& format, int calls_left, bool first = false) const;
  /// What the agent's answer is without calls; null: any text.
  const Grammar* answer() const { return answer_.get(); }

 private:
  std::vector<CallableTool> tools_;
  std::vector<ToolSchema> schemas_;
  CallLimits limits_;
  std::shared_ptr<const Grammar> answer_;
  std::vector<ServerTools> servers_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<const Grammar>> grammars_;  // by the form of calls and their number
};

/// A call that a model wrote.
struct ModelCall {
  std::string tool;
  std::string arguments;  // a JSON object
  std::string problem;    // why it cannot be run; the model gets to read it
};

/// The calls in an answer, in their order; none: it is an answer. `answer` is marked_answer() if the format has special
/// tokens. An answer that is nothing but objects of JSON that name tools and fit their schemas, also in a list or a
/// block of code, is calls too, unless the agent's answer has a form of its own.
std::vector<ModelCall> calls_in(const std::string& answer, const ToolFormat& format, const CallableTools& tools);

/// A result as the model gets it: UTF-8 without control characters. Of a result longer than `max_bytes` the first and
/// the last `max_bytes` / 2 stay, with the number of bytes that were left out between them.
std::string shown_result(const std::string& text, std::size_t max_bytes);

}  // namespace baton
