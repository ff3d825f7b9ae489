// SPDX-License-Identifier: Apache-2.0
// ServerApi: the language of one kind of server: requests as JSON, and what its answers mean. It knows no network.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"

namespace baton {

/// A request to a server: a POST of `body` to `path`.
struct ServerRequest {
  std::string path;
  std::string body;
};

/// What an event of a stream, or the body of an answer, says.
struct ServerPiece {
  std::string text;
  std::vector<TokenId> ids;     // of the text, where the server gives them
  bool whole = false;           // text and ids are those of the answer so far, and not of this event alone
  std::int64_t tokens = -1;     // generated so far; -1: not said
  bool progress = false;        // of the prompt alone
  std::int64_t processed = -1;  // tokens of the prompt with KV so far
  std::int64_t prompt = -1;     // tokens of the prompt
  std::int64_t cached = -1;     // tokens of the prompt that were in the server's cache
  double prompt_ms = -1.0, decode_ms = -1.0;
  int slot = -1;
  std::optional<FinishReason> reason;  // the answer has ended
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

}  // namespace baton
