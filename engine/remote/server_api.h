// SPDX-License-Identifier: Apache-2.0
// What the languages of servers share in reading and writing JSON. For .cpp files of this room only.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/json_fields.h"
#include "engine/engine.h"
#include "engine/text/templates.h"
#include "engine/text/tokenizer.h"

namespace baton {

inline constexpr std::int32_t kMaxServerCount = std::numeric_limits<std::int32_t>::max();
inline constexpr double kMaxServerMs = 1e12;

/// A text of a server's. Throws ModelError for what is no JSON, and for what is beyond the limits of an event.
JsonDocument parse_server_json(std::string_view text, const std::string& origin);

/// A count of tokens; -1: the server does not tell it.
std::int64_t count(const JsonFields& fields, const std::string& key);

/// Invalid UTF-8 becomes U+FFFD.
std::string dumped(const Json& body);

/// A name that no other request has, so that its prompt shares nothing with what a server keeps.
std::string fresh_salt();

/// What an error says, in whichever form: {"error": {"message": ...}}, {"error": ...}, {"message": ...}, or any text.
std::string error_text(const Json& body);
std::string words_of_error(std::string_view body);

// RequestBody: the JSON object of a request to a server, written as it is made. A nlohmann::json would end the process
// where memory runs out meanwhile: its destructor allocates (docs/decisions/memory.md).

class RequestBody {
 public:
  /// Adds a member: a truth value, a finite number, a text, another body, or a range of these. Names are not repeated
  /// and need no escapes. Leaves the body as it was when it throws.
  template <class Value>
  RequestBody& set(std::string_view name, const Value& value) {
    std::string member = members_.empty() ? "\"" : ",\"";
    append(member.append(name).append("\":"), value);
    members_ += member;
    return *this;
  }

  std::string text() const { return "{" + members_ + "}"; }

 private:
  template <class Value>
  static void append(std::string& out, const Value& value) {
    if constexpr (std::is_same_v<Value, bool>) {
      out += value ? "true" : "false";
    } else if constexpr (std::is_integral_v<Value>) {
      out += std::to_string(value);
    } else if constexpr (std::is_floating_point_v<Value>) {
      append_number(out, value);
    } else if constexpr (std::is_same_v<Value, RequestBody>) {
      out += value.text();
    } else if constexpr (std::is_convertible_v<const Value&, std::string_view>) {
      append_text(out, value);
    } else {
      const char* separator = "[";
      for (const auto& one : value) {
        out += std::exchange(separator, ",");
        append(out, one);
      }
      out += *separator == '[' ? "[]" : "]";
    }
  }

  static void append_number(std::string& out, double value);
  static void append_text(std::string& out, std::string_view text);  // invalid UTF-8 becomes U+FFFD

  std::string members_;
};

// ServerApi: the language of one kind of server: requests as JSON, and what its answers mean. It knows no network.

/// A request to a server: a POST of `body` to `path`.
struct ServerRequest {
  std::string path;
  std::string body;
};

/// What an event of a stream, or the body of an answer, says.
struct ServerPiece {
  std::string text;
  std::string thinking;               // text that the server says is thinking
  std::vector<TokenId> ids;           // ids of the text, if the server gives them
  bool spelled = false;               // special tokens are in the text, by their spelling
  bool whole = false;                 // text and ids are those of the answer so far, and not of this event alone
  std::int64_t tokens = -1;           // generated so far; -1: not said
  std::int64_t thinking_tokens = -1;  // of them for thinking; -1: not said
  bool progress = false;              // progress of the prompt alone
  std::int64_t processed = -1;        // tokens of the prompt with KV so far
  std::int64_t prompt = -1;           // tokens of the prompt
  std::int64_t cached = -1;           // tokens of the prompt that were in the server's cache
  double prompt_ms = -1.0, decode_ms = -1.0;
  int slot = -1;
  std::optional<FinishReason> reason;  // the answer has ended
  std::string server_reason;           // FinishReason::other: the server's word
  bool last = false;                   // nothing follows
  std::string error;                   // the server's words
};

/// All members are const and safe from any thread.
class ServerApi {
 public:
  virtual ~ServerApi() = default;

  virtual std::string_view name() const = 0;  // as `api` in a workflow file
  /// True when the server takes and gives token ids; otherwise ids are those of MessageTokenizer.
  virtual bool ids() const = 0;
  /// Tokens that the server caches together; 0: prompts are not sent ahead.
  virtual std::int32_t cache_block() const = 0;
  /// True when the text of an answer ends before a stop text; otherwise the stop text is the end of it.
  virtual bool cuts_stops() const { return true; }

  /// Why the server cannot run such a request; empty: it can. This form says what is true of every server.
  virtual std::string refusal(const GenerationRequest& request) const;
  /// `slot`: where the server is to run it; -1: it chooses.
  virtual ServerRequest answer(const GenerationRequest& request, const std::vector<TokenId>& prompt,
                               int slot) const = 0;
  /// Puts the prompt into the server's cache. Its whole answer is a ServerPiece. `yields`: the request says that others
  /// are more urgent, which some servers refuse with status 400.
  virtual ServerRequest warm_up(const std::vector<TokenId>& prompt, int slot, bool yields) const = 0;
  /// Where the server tells which of its slots are idle; empty: it has none, and keeps prompts wherever it likes.
  virtual std::string slots_path() const { return {}; }
  /// The idle slots, from the answer to that path. Throws ModelError where the text is not such an answer.
  virtual std::vector<int> idle_slots(std::string_view) const { return {}; }
  /// Reads an event of the answer, or the answer to a warm-up. Throws ModelError where the text is neither.
  virtual ServerPiece read(std::string_view json) const = 0;
};

/// llama-server of llama.cpp: /completion with token ids.
std::unique_ptr<ServerApi> make_llama_api();

/// Servers that know OpenAI's HTTP API. `ids`: /v1/completions with token ids; otherwise /v1/chat/completions with
/// messages.
std::unique_ptr<ServerApi> make_openai_api(std::string model, bool ids);

/// vLLM: /v1/completions with token ids in and out. `version`: as it tells it; empty: the newest known.
std::unique_ptr<ServerApi> make_vllm_api(std::string model, std::string_view version);

/// SGLang: /generate. `deltas`: an event of a stream holds what is new, and not all so far. `caches`: it keeps prompts.
std::unique_ptr<ServerApi> make_sglang_api(bool deltas, bool caches);

// Events of servers that stream as OpenAI does: how they end and fail, and what completions hold, with what vLLM adds.

inline constexpr const char* kAnswer = "its answer";  // the origin of what is read

/// What an event of a stream holds; nothing: it is the end of the stream or an error, as `piece` then says. Throws
/// ModelError.
std::optional<JsonDocument> read_event(std::string_view json, ServerPiece& piece);

/// An event of a stream, or a whole answer, of /v1/completions or /v1/chat/completions. Throws ModelError.
ServerPiece read_completion(std::string_view json);

// ServerAnswer: the text and the token ids of an answer, piece by piece.

class ServerAnswer {
 public:
  /// `on_plain` is told of each token that has a text of its own; may be null. `stops`: the texts before which the
  /// answer ends, where the server sends them with it.
  ServerAnswer(const Tokenizer& tokenizer, std::function<void(TokenId)> on_plain,
               const std::vector<std::string>& stops = {})
      : tokenizer_(&tokenizer), on_plain_(std::move(on_plain)), stops_(stops) {}

  /// Returns the text that is new and certain to precede any stop text. A server may send a token's id before its text
  /// (which may be the beginning of a stop text), and leaves out ids of tokens that end inside of a character. Ids that
  /// it leaves out are those of the text since the last id that it gave, tokenized as one: the last of them may change
  /// with the next piece. Throws what the tokenizer throws, and ModelError for an id beyond the vocabulary and for an
  /// answer so far that has become shorter.
  std::string add(ServerPiece piece);
  /// Nothing follows: the text that was held back, which this returns, is a part of the answer, or the ids of a stop
  /// text are none. Throws what the tokenizer throws.
  std::string end();
  /// Keeps the tokens that end within the first bytes of the text. Returns the bytes that they are. Throws what the
  /// tokenizer throws.
  std::size_t keep(std::size_t bytes);
  /// Adds the ids of a text behind the tokens. Throws what the tokenizer throws.
  void append(std::string_view text, SpecialTokens special);
  /// A stop text was found.
  bool stopped() const { return stops_.found(); }

  const std::string& text() const { return text_; }
  /// The ids of `text()`; before the end of the answer, with those of a text that is held back.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// Tokens that the server has counted.
  std::int64_t generated() const { return generated_; }

 private:
  void keep_new(ServerPiece& piece) const;
  std::vector<TokenId> rest_of_answer(std::string_view text) const;
  bool ends_with(std::string_view text, TokenId id) const;
  void fix_tokens();  // no later piece changes those so far

  const Tokenizer* tokenizer_;
  std::function<void(TokenId)> on_plain_;
  StopStrings stops_;
  std::string text_;
  std::vector<TokenId> tokens_;
  std::vector<std::size_t> ends_;  // for each token: bytes of the answer up to its text's end
  std::size_t bytes_ = 0;          // bytes of the answer, with what is held back
  std::size_t ids_ = 0;            // that the server has given
  std::size_t sure_ = 0;           // tokens that no later piece changes
  std::string unsure_;             // the text behind them
  std::vector<TokenId> waiting_;   // ids whose text has not come
  bool gap_ = false;               // an id is missing among them
  std::int64_t generated_ = 0;
};

// The text side of a server that takes messages and neither token ids nor a chat template: ids are the bytes of UTF-8,
// and one id for the beginning of each role's message, which no text becomes. So a value cannot write a role marker
// here either, and whatever builds prompts of ids needs to know nothing of such servers.

/// A tokenizer and a chat template of this kind.
ModelText message_text();

/// The messages that a prompt by message_text() consists of, without the answer that is to be written. What stands
/// before the first message is of the user.
std::vector<ChatMessage> messages_of(const std::vector<TokenId>& prompt);

}  // namespace baton
