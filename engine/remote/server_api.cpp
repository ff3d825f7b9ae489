// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/server_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <random>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/json_fields.h"
#include "engine/base/utf8.h"
#include "engine/text/constrain/grammar.h"

namespace baton {

JsonDocument parse_server_json(std::string_view text, const std::string& origin) {
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  JsonLimits limits;
  limits.max_values = 4'000'000;
  limits.max_bytes = kMaxBytes;
  limits.max_token = kMaxBytes;
  return parse_json(text, origin, limits);
}

std::int64_t count(const JsonFields& fields, const std::string& key) {
  return fields.integer_or(key, -1, -1, kMaxServerCount);
}

std::string dumped(const Json& body) { return body.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string fresh_salt() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::string error_text(const Json& body) {
  const Json* error = &body;
  for (const char* key : {"error", "message", "detail"}) {
    if (error->is_object() && error->contains(key)) error = &(*error)[key];
  }
  std::string text = said(error->is_string() ? error->get_ref<const std::string&>() : dumped(*error));
  if (!text.empty()) return text;  // an empty text would be no error
  return body.is_object() ? said("without words: " + dumped(body)) : "without words";
}

std::string words_of_error(std::string_view body) {
  try {
    return error_text(*parse_server_json(body, "its answer"));
  } catch (const std::exception&) {
    return said(body, 200);
  }
}

// A number or a text alone is freed without memory.
void RequestBody::append_number(std::string& out, double value) { out += dumped(Json(value)); }

void RequestBody::append_text(std::string& out, std::string_view text) { out += dumped(Json(text)); }

namespace {

/// The words by which servers say how an answer ended.
struct EndWord {
  std::string_view word;
  FinishReason reason;  // error: the answer is not whole, and more of it never comes
};
constexpr std::array kEndWords = {
    EndWord{"stop", FinishReason::eos},          EndWord{"eos", FinishReason::eos},
    EndWord{"eos_token", FinishReason::eos},     EndWord{"end_turn", FinishReason::eos},
    EndWord{"tool_calls", FinishReason::eos},    EndWord{"function_call", FinishReason::eos},
    EndWord{"word", FinishReason::stop},         EndWord{"stop_sequence", FinishReason::stop},
    EndWord{"length", FinishReason::length},     EndWord{"limit", FinishReason::length},
    EndWord{"max_tokens", FinishReason::length}, EndWord{"model_length", FinishReason::length},
    EndWord{"abort", FinishReason::error},       EndWord{"error", FinishReason::error},
    EndWord{"cancelled", FinishReason::error},   EndWord{"content_filter", FinishReason::error},
    EndWord{"safety", FinishReason::error},      EndWord{"refusal", FinishReason::error},
};

/// Notes how the server says that an answer ended. `matched`: the stop text, or the token, that ended it, if the server
/// tells it.
void end_with(ServerPiece& piece, const std::string& word, const Json* matched) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b; };
  const auto known = std::find_if(kEndWords.begin(), kEndWords.end(), [&](const EndWord& one) {
    return std::equal(word.begin(), word.end(), one.word.begin(), one.word.end(), same);
  });
  piece.reason = known == kEndWords.end() ? FinishReason::other : known->reason;
  if (piece.reason == FinishReason::eos && matched != nullptr && matched->is_string())
    piece.reason = FinishReason::stop;
  if (piece.reason == FinishReason::other) piece.server_reason = said(word, 60);
  if (piece.reason == FinishReason::error && piece.error.empty())
    piece.error = fmt::format("it has given the request up ({})", said(word, 60));
}

}  // namespace

std::optional<JsonDocument> read_event(std::string_view json, ServerPiece& piece) {
  if (json == "[DONE]") {
    piece.last = true;
    return std::nullopt;
  }
  JsonDocument document = parse_server_json(json, kAnswer);
  if (document->is_object() && document->contains("error") && !(*document)["error"].is_null()) {
    piece.error = error_text(*document);
    return std::nullopt;
  }
  return document;
}

namespace {

/// Some servers send it by both names. Other things than a text are no thinking that is known.
std::string thinking_of(const JsonFields& delta) {
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const Json* text = delta.find(name);
    if (text != nullptr && text->is_string() && *text != "") return text->get<std::string>();
  }
  return {};
}

}  // namespace

ServerPiece read_completion(std::string_view json) {
  ServerPiece piece;
  const std::optional<JsonDocument> document = read_event(json, piece);
  if (!document) return piece;
  const std::string origin = kAnswer;
  const JsonFields fields(**document, origin);
  if (const Json* usage = fields.find("usage")) {
    const JsonFields of(*usage, origin, "usage.");
    piece.prompt = count(of, "prompt_tokens");
    piece.tokens = count(of, "completion_tokens");
    if (const Json* details = of.find("prompt_tokens_details"))
      piece.cached = count(JsonFields(*details, origin, "usage.prompt_tokens_details."), "cached_tokens");
    if (const Json* details = of.find("completion_tokens_details"))
      piece.thinking_tokens =
          count(JsonFields(*details, origin, "usage.completion_tokens_details."), "reasoning_tokens");
  }
  const Json* choices = fields.find("choices");
  if (choices == nullptr || !choices->is_array() || choices->empty()) return piece;
  const JsonFields choice(choices->front(), origin, "choices[0].");
  if (const Json* delta = choice.find("delta")) {
    const JsonFields of(*delta, origin, "choices[0].delta.");
    piece.text = of.text_or("content", "");
    piece.thinking = thinking_of(of);
  } else {
    piece.text = choice.text_or("text", "");
  }
  piece.ids = choice.integers("token_ids", 0, kMaxServerCount);
  const std::string reason = choice.text_or("finish_reason", "");
  if (reason.empty()) return piece;
  end_with(piece, reason, choice.find("stop_reason"));
  return piece;
}

std::string ServerApi::refusal(const GenerationRequest& request) const {
  if (!request.forced.empty()) return "it cannot be given the tokens of its answer";
  if (!request.choices.empty()) return "it does not tell the probabilities of whole texts, which `choose` compares";
  if (request.callbacks.on_logits) return "it gives no logits";
  return {};
}

// The endpoint /completion of llama-server, as its README describes it (tools/server in llama.cpp).

namespace {

constexpr std::int32_t kLlamaBlock = 16;             // tokens; its cache has no blocks, but a warm-up costs a request
constexpr std::uint64_t kLlamaSeeds = 0xFFFF'FFFFu;  // the last one means a random seed
constexpr std::array kSamplers = {"penalties", "temperature", "top_k", "top_p", "min_p"};  // in our sampler's order
constexpr std::array kResponseFields = {"content",   "tokens",  "tokens_predicted", "tokens_evaluated", "stop",
                                        "stop_type", "id_slot", "timings"};  // the end would repeat the prompt

class LlamaApi final : public ServerApi {
 public:
  std::string_view name() const override { return "llama"; }
  bool ids() const override { return true; }
  std::int32_t cache_block() const override { return kLlamaBlock; }

  std::string refusal(const GenerationRequest& request) const override {
    if (std::string why = ServerApi::refusal(request); !why.empty()) return why;
    const SamplingParams& sampling = request.sampling;
    if (sampling.presence_penalty != 0.0f || sampling.frequency_penalty != 0.0f)
      return "the presence and frequency penalties of llama-server count the prompt, too";
    return {};
  }

  ServerRequest answer(const GenerationRequest& request, const std::vector<TokenId>& prompt, int slot) const override {
    const SamplingParams& sampling = request.sampling;
    RequestBody body = common(prompt, slot);
    body.set("n_predict", request.max_tokens);
    body.set("stream", true);
    body.set("return_progress", true);
    body.set("cache_prompt", reuses_prefixes(*request.reuse.method));
    // Everything that the server would otherwise take from its command line.
    body.set("samplers", kSamplers);
    body.set("temperature", sampling.temperature);
    body.set("top_k", sampling.top_k);
    body.set("top_p", sampling.top_p);
    body.set("min_p", sampling.min_p);
    body.set("repeat_penalty", sampling.repetition_penalty);
    body.set("repeat_last_n", static_cast<std::int64_t>(prompt.size()) + request.max_tokens);  // all of them
    body.set("presence_penalty", 0.0);
    body.set("frequency_penalty", 0.0);
    body.set("dynatemp_range", 0.0);
    body.set("mirostat", 0);
    body.set("ignore_eos", false);
    body.set("seed", sampling.seed % kLlamaSeeds);
    body.set("stop", request.stop);
    if (request.constraint) body.set("grammar", gbnf_of(*request.constraint));
    if (request.thinking) {  // markers that are special tokens would have no text
      std::vector<std::string> marks = {request.thinking->begin, request.thinking->end};
      std::erase(marks, "");
      body.set("preserved_tokens", marks);
    }
    return {"/completion", body.text()};
  }

  ServerRequest warm_up(const std::vector<TokenId>& prompt, int slot, bool) const override {
    RequestBody body = common(prompt, slot);
    body.set("n_predict", 0);
    body.set("stream", false);
    body.set("cache_prompt", true);
    body.set("temperature", 0.0);
    return {"/completion", body.text()};
  }

  std::string slots_path() const override { return "/slots"; }
  std::vector<int> idle_slots(std::string_view json) const override {
    const std::string origin = "its answer to /slots";
    const JsonDocument document = parse_server_json(json, origin);
    std::vector<int> idle;
    if (!document->is_array()) throw ModelError(origin + " is no list");
    for (const Json& slot : *document) {
      const JsonFields fields(slot, origin);
      if (!fields.flag_or("is_processing", true)) idle.push_back(fields.integer("id", 0, kMaxServerCount));
    }
    return idle;
  }

  ServerPiece read(std::string_view json) const override {
    const std::string origin = "its answer";
    const JsonDocument document = parse_server_json(json, origin);
    ServerPiece piece;
    if (document->is_object() && document->contains("error")) {
      piece.error = error_text(*document);
      return piece;
    }
    const JsonFields fields(*document, origin);
    piece.text = fields.text_or("content", "");
    piece.tokens = count(fields, "tokens_predicted");
    piece.prompt = count(fields, "tokens_evaluated");
    if (const Json* progress = fields.find("prompt_progress")) {
      const JsonFields of(*progress, origin, "prompt_progress.");
      piece.progress = true;
      piece.processed = count(of, "processed");
      piece.prompt = count(of, "total");
      piece.cached = count(of, "cache");
      return piece;
    }
    piece.ids = fields.integers("tokens", 0, kMaxServerCount);
    if (const Json* timings = fields.find("timings")) {
      const JsonFields of(*timings, origin, "timings.");
      piece.cached = count(of, "cache_n");
      piece.prompt_ms = of.number_or("prompt_ms", -1.0, -1.0, kMaxServerMs);
      piece.decode_ms = of.number_or("predicted_ms", -1.0, -1.0, kMaxServerMs);
    }
    piece.last = fields.flag_or("stop", false);
    if (!piece.last) return piece;
    piece.slot = fields.integer_or("id_slot", -1, -1, kMaxServerCount);
    const std::string type = fields.text_or("stop_type", "limit");
    end_with(piece, type == "none" ? "limit" : type, nullptr);
    return piece;
  }

 private:
  static RequestBody common(const std::vector<TokenId>& prompt, int slot) {
    RequestBody body;
    body.set("prompt", prompt).set("return_tokens", true).set("response_fields", kResponseFields);
    if (slot >= 0) body.set("id_slot", slot);
    return body;
  }
};

}  // namespace

std::unique_ptr<ServerApi> make_llama_api() { return std::make_unique<LlamaApi>(); }

// The languages of servers that speak OpenAI's completions: plain ones, vLLM and SGLang.

// OpenAI's HTTP API, as far as servers of others have it too: /v1/completions with token ids, or
// /v1/chat/completions with messages.

namespace {

constexpr std::uint64_t kOpenAiSeeds = 0x8000'0000u;
constexpr std::size_t kMaxStops = 4;

class OpenAiApi final : public ServerApi {
 public:
  OpenAiApi(std::string model, bool ids) : model_(std::move(model)), ids_(ids) {}

  std::string_view name() const override { return "openai"; }
  bool ids() const override { return ids_; }
  std::int32_t cache_block() const override { return 0; }  // a server whose requests may cost money

  std::string refusal(const GenerationRequest& request) const override {
    const SamplingParams& sampling = request.sampling;
    if (std::string why = ServerApi::refusal(request); !why.empty()) return why;
    if (request.constraint)
      return "the API of OpenAI has no grammars; with `enforce: false` the output is only checked";
    if (request.stop.size() > kMaxStops)
      return fmt::format("it takes at most {} stop texts, and there are {}", kMaxStops, request.stop.size());
    if (sampling.top_k != 0) return "the API of OpenAI has no `top_k`";
    if (sampling.min_p != 0.0f) return "the API of OpenAI has no `min_p`";
    if (sampling.repetition_penalty != 1.0f) return "the API of OpenAI has no `repetition_penalty`";
    return {};
  }

  ServerRequest answer(const GenerationRequest& request, const std::vector<TokenId>& prompt, int) const override {
    RequestBody body;
    body.set("model", model_).set("max_tokens", request.max_tokens).set("temperature", request.sampling.temperature);
    body.set("top_p", request.sampling.top_p).set("seed", request.sampling.seed % kOpenAiSeeds).set("stream", true);
    body.set("stream_options", RequestBody().set("include_usage", true));
    if (!request.stop.empty()) body.set("stop", request.stop);
    if (const float by = request.sampling.presence_penalty; by != 0.0f) body.set("presence_penalty", by);
    if (const float by = request.sampling.frequency_penalty; by != 0.0f) body.set("frequency_penalty", by);
    if (ids_) return {"/v1/completions", body.set("prompt", prompt).text()};
    std::vector<RequestBody> messages;
    for (const ChatMessage& message : messages_of(prompt))
      messages.push_back(RequestBody().set("role", message.role).set("content", message.content));
    return {"/v1/chat/completions", body.set("messages", messages).text()};
  }

  ServerRequest warm_up(const std::vector<TokenId>&, int, bool) const override { return {}; }  // see cache_block()

  ServerPiece read(std::string_view json) const override { return read_completion(json); }

 private:
  std::string model_;
  bool ids_;
};

}  // namespace

std::unique_ptr<ServerApi> make_openai_api(std::string model, bool ids) {
  return std::make_unique<OpenAiApi>(std::move(model), ids);
}

// vLLM's /v1/completions with what it adds to OpenAI's API, as the documentation of its versions 0.10.2 to 0.33.0
// describes it (docs.vllm.ai: OpenAI-Compatible Server, Structured Outputs).

namespace {

constexpr std::int32_t kVllmBlock = 16;  // tokens; its default, and only full blocks are found again
constexpr std::uint64_t kVllmSeeds = std::uint64_t{1} << 63;
constexpr int kStructuredOutputs = 11;  // since 0.11; 0.12 ignores what stood in its place

/// True for a release 0.N before the given one. Versions of another form are newer, or are built from source.
bool is_before(std::string_view version, int minor) {
  if (!version.starts_with("0.") || version.find("dev") != std::string_view::npos) return false;
  int number = minor;
  std::from_chars(version.data() + 2, version.data() + version.size(), number);
  return number < minor;
}

class VllmApi final : public ServerApi {
 public:
  VllmApi(std::string model, std::string_view version)
      : model_(std::move(model)), is_old_(is_before(version, kStructuredOutputs)) {}

  std::string_view name() const override { return "vllm"; }
  bool ids() const override { return true; }
  std::int32_t cache_block() const override { return kVllmBlock; }
  bool cuts_stops() const override { return false; }

  ServerRequest answer(const GenerationRequest& request, const std::vector<TokenId>& prompt, int) const override {
    const SamplingParams& sampling = request.sampling;
    RequestBody body = common(prompt, request.max_tokens);
    body.set("stream", true);
    body.set("stream_options", RequestBody().set("include_usage", true));
    body.set("return_token_ids", true);
    // Everything that the server would otherwise take from the model's generation_config.json.
    body.set("temperature", sampling.temperature);
    body.set("top_k", sampling.top_k > 0 ? sampling.top_k : -1);
    body.set("top_p", sampling.top_p);
    body.set("min_p", sampling.min_p);
    body.set("repetition_penalty", sampling.repetition_penalty);
    body.set("presence_penalty", sampling.presence_penalty);
    body.set("frequency_penalty", sampling.frequency_penalty);
    body.set("skip_special_tokens", !request.thinking);  // its markers may be special
    body.set("ignore_eos", false);
    body.set("seed", sampling.seed % kVllmSeeds);
    if (!request.stop.empty()) {
      body.set("stop", request.stop);
      body.set("include_stop_str_in_output", true);  // otherwise text lags behind its ids
    }
    if (request.constraint && is_old_) body.set("guided_grammar", gbnf_of(*request.constraint));
    if (request.constraint && !is_old_)
      body.set("structured_outputs", RequestBody().set("grammar", gbnf_of(*request.constraint)));
    if (!reuses_prefixes(*request.reuse.method) && !is_old_) body.set("cache_salt", fresh_salt());
    return {"/v1/completions", body.text()};
  }

  /// One token is the least that it generates; its KV is never computed.
  ServerRequest warm_up(const std::vector<TokenId>& prompt, int, bool yields) const override {
    RequestBody body = common(prompt, 1);
    body.set("stream", false);
    body.set("temperature", 0.0);
    if (yields) body.set("priority", 1);  // that of the others is 0, and higher ones come later
    return {"/v1/completions", body.text()};
  }

  ServerPiece read(std::string_view json) const override { return read_completion(json); }

 private:
  RequestBody common(const std::vector<TokenId>& prompt, std::int32_t max_tokens) const {
    return RequestBody().set("model", model_).set("prompt", prompt).set("max_tokens", max_tokens);
  }

  std::string model_;
  bool is_old_;
};

}  // namespace

std::unique_ptr<ServerApi> make_vllm_api(std::string model, std::string_view version) {
  return std::make_unique<VllmApi>(std::move(model), version);
}

// SGLang's own /generate, as the documentation of its version 0.5.23 describes it (docs.sglang.io: SGLang Native APIs,
// Sampling Parameters).

namespace {

constexpr std::int32_t kSglangBlock = 16;  // tokens; its cache keeps single ones, but a warm-up costs a request
constexpr std::uint64_t kSglangSeeds = std::uint64_t{1} << 63;

class SglangApi final : public ServerApi {
 public:
  SglangApi(bool deltas, bool caches) : deltas_(deltas), caches_(caches) {}

  std::string_view name() const override { return "sglang"; }
  bool ids() const override { return true; }
  std::int32_t cache_block() const override { return caches_ ? kSglangBlock : 0; }
  bool cuts_stops() const override { return false; }

  ServerRequest answer(const GenerationRequest& request, const std::vector<TokenId>& prompt, int) const override {
    const SamplingParams& sampling = request.sampling;
    // Everything that the server would otherwise take from its command line or the model's generation_config.json.
    RequestBody params;
    params.set("max_new_tokens", request.max_tokens).set("temperature", sampling.temperature);
    params.set("top_k", sampling.top_k > 0 ? sampling.top_k : -1).set("top_p", sampling.top_p);
    params.set("min_p", sampling.min_p).set("repetition_penalty", sampling.repetition_penalty);
    params.set("presence_penalty", sampling.presence_penalty).set("frequency_penalty", sampling.frequency_penalty);
    params.set("skip_special_tokens", !request.thinking);  // its markers may be special
    params.set("ignore_eos", false).set("sampling_seed", sampling.seed % kSglangSeeds);
    if (!request.stop.empty()) {
      params.set("stop", request.stop).set("no_stop_trim", true);  // a part of it has been streamed by then
    }
    if (request.constraint) params.set("ebnf", gbnf_of(*request.constraint));
    RequestBody body;
    body.set("input_ids", prompt).set("sampling_params", params).set("stream", true);
    if (!reuses_prefixes(*request.reuse.method)) body.set("extra_key", fresh_salt());
    return {"/generate", body.text()};
  }

  /// Its own client puts a prompt into the cache like this.
  ServerRequest warm_up(const std::vector<TokenId>& prompt, int, bool) const override {
    RequestBody body;
    body.set("input_ids", prompt).set("stream", false);
    body.set("sampling_params", RequestBody().set("max_new_tokens", 0).set("temperature", 0.0));
    return {"/generate", body.text()};
  }

  ServerPiece read(std::string_view json) const override {
    ServerPiece piece;
    const std::optional<JsonDocument> document = read_event(json, piece);
    if (!document) return piece;
    const std::string origin = kAnswer;
    const JsonFields fields(**document, origin);
    piece.text = fields.text_or("text", "");
    piece.ids = fields.integers("output_ids", 0, kMaxServerCount);
    piece.whole = !deltas_;
    const Json* meta = fields.find("meta_info");
    if (meta == nullptr) fields.fail("meta_info", "expected an object");
    const JsonFields of(*meta, origin, "meta_info.");
    piece.prompt = count(of, "prompt_tokens");
    piece.tokens = count(of, "completion_tokens");
    piece.cached = count(of, "cached_tokens");
    if (const Json* reason = of.find("finish_reason"))
      end(piece, JsonFields(*reason, origin, "meta_info.finish_reason."));
    return piece;
  }

 private:
  /// What it matched is a stop text, or the id of a token that ends answers.
  static void end(ServerPiece& piece, const JsonFields& reason) {
    const std::string type = reason.text_or("type", "stop");
    if (type == "abort") piece.error = reason.text_or("message", "");
    end_with(piece, type, reason.find("matched"));
  }

  bool deltas_, caches_;
};

}  // namespace

std::unique_ptr<ServerApi> make_sglang_api(bool deltas, bool caches) {
  return std::make_unique<SglangApi>(deltas, caches);
}

namespace {

constexpr TokenId kBytes = 256;
constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
constexpr std::uint64_t kIdentity = 0x6d65'7373'6167'6573u;  // "messages"

std::string marker(std::string_view role) { return fmt::format("<|baton:{}|>", role); }

class MessageStream final : public DecodeStream {
 public:
  explicit MessageStream(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  std::string push(TokenId id) override {
    bytes_ += tokenizer_.decode(std::array{id}, skip_special_);
    std::size_t whole = 0;
    while (whole < bytes_.size()) {
      const utf8::CharacterStep step = utf8::scan(bytes_, whole);
      if (step.kind == utf8::Scan::unfinished) break;
      whole += step.bytes;
    }
    std::string text = utf8::repaired(std::string_view(bytes_).substr(0, whole));
    bytes_.erase(0, whole);
    return text;
  }
  std::string finish() override { return utf8::repaired(std::exchange(bytes_, {})); }

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::string bytes_;
};

class MessageTokenizer final : public Tokenizer {
 public:
  MessageTokenizer() : Tokenizer(kIdentity) {}

  std::vector<TokenId> encode_piece(std::string_view text, SpecialTokens special, PieceStart,
                                    const std::stop_token&) const override {
    const std::string valid = utf8::repaired(text);
    std::vector<TokenId> ids;
    ids.reserve(valid.size());
    for (std::size_t at = 0; at < valid.size();) {
      const int role = special == SpecialTokens::recognise ? role_at(std::string_view(valid).substr(at)) : -1;
      ids.push_back(role < 0 ? static_cast<unsigned char>(valid[at]) : kBytes + role);
      at += role < 0 ? 1 : marker(kRoles[static_cast<std::size_t>(role)]).size();
    }
    return ids;
  }
  std::vector<TokenId> encode_with_template(std::string_view text, const std::stop_token& stop) const override {
    return encode(text, SpecialTokens::recognise, stop);
  }
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    std::string text;
    for (const TokenId id : ids) {
      if (id >= 0 && id < kBytes) text += static_cast<char>(id);
      if (is_special(id) && !skip_special) text += marker(kRoles[static_cast<std::size_t>(id - kBytes)]);
    }
    return text;
  }
  std::string token_bytes(TokenId id) const override { return decode(std::array{id}, true); }
  void read_tokens(const ReadToken& read, const std::stop_token&) const override {
    for (TokenId id = 0; id < size(); ++id) read(id, token_bytes(id), token_bytes(id));
  }
  std::optional<TokenId> token_id(std::string_view token) const override {
    if (token.size() == 1) return static_cast<unsigned char>(token.front());
    const int role = role_at(token);
    return role >= 0 && token == marker(kRoles[static_cast<std::size_t>(role)]) ? std::optional(kBytes + role)
                                                                                : std::nullopt;
  }
  bool is_special(TokenId id) const override { return id >= kBytes && id < size(); }
  std::int32_t size() const override { return kBytes + static_cast<std::int32_t>(kRoles.size()); }
  std::unique_ptr<DecodeStream> stream(bool skip_special) const override {
    return std::make_unique<MessageStream>(*this, skip_special);
  }

 private:
  static int role_at(std::string_view text) {
    if (!text.starts_with("<|baton:")) return -1;
    for (std::size_t role = 0; role < kRoles.size(); ++role) {
      if (text.starts_with(marker(kRoles[role]))) return static_cast<int>(role);
    }
    return -1;
  }
};

class MessageTemplate final : public ChatTemplate {
 public:
  std::string render(const std::vector<ChatMessage>& messages, const ChatOptions& options,
                     const std::stop_token&) const override {
    std::string text;
    for (const ChatMessage& message : messages) {
      if (std::find(kRoles.begin(), kRoles.end(), message.role) == kRoles.end())
        throw ModelError(fmt::format("a message has the role '{}'; expected one of {}", message.role,
                                     "system, user, assistant, tool"));
      text += marker(message.role) + message.content;
    }
    return options.add_generation_prompt ? text + marker("assistant") : text;
  }
};

}  // namespace

ModelText message_text() {
  ModelText text;
  text.tokenizer = std::make_shared<const MessageTokenizer>();
  text.chat_template = std::make_shared<const MessageTemplate>();
  return text;
}

std::vector<ChatMessage> messages_of(const std::vector<TokenId>& prompt) {
  std::vector<ChatMessage> messages;
  for (const TokenId id : prompt) {
    if (id >= kBytes && id < kBytes + static_cast<TokenId>(kRoles.size())) {
      messages.push_back({std::string(kRoles[static_cast<std::size_t>(id - kBytes)]), {}});
      continue;
    }
    if (messages.empty()) messages.push_back({"user", {}});
    messages.back().content += static_cast<char>(id);
  }
  if (!messages.empty() && messages.back().role == "assistant" && messages.back().content.empty()) messages.pop_back();
  return messages;
}

/// Returns what earlier events did not hold of an answer so far.
void ServerAnswer::keep_new(ServerPiece& piece) const {
  if (!piece.whole) return;
  if (piece.text.size() < bytes_ || piece.ids.size() < ids_)
    throw ModelError(fmt::format("its answer has become shorter: {} bytes and {} ids, expected at least {} and {}",
                                 piece.text.size(), piece.ids.size(), bytes_, ids_));
  piece.text.erase(0, bytes_);
  piece.ids.erase(piece.ids.begin(), piece.ids.begin() + static_cast<std::ptrdiff_t>(ids_));
}

/// The ids of text behind the tokens so far, or behind the prompt.
std::vector<TokenId> ServerAnswer::rest_of_answer(std::string_view text) const {
  const PieceStart start = tokens_.empty() ? tokenizer_->start_inside() : tokenizer_->start_after(tokens_.back());
  return tokenizer_->encode_piece(text, SpecialTokens::as_text, start);
}

bool ServerAnswer::ends_with(std::string_view text, TokenId id) const {
  const std::string spelling = tokenizer_->decode(std::array{id}, false);
  return !spelling.empty() && text.ends_with(spelling);
}

std::string ServerAnswer::add(ServerPiece piece) {
  keep_new(piece);
  for (const TokenId id : piece.ids) {
    if (id < 0 || id >= tokenizer_->size())
      throw ModelError(fmt::format("its answer holds the id {}; expected one below {}", id, tokenizer_->size()));
  }
  const auto given = static_cast<std::int64_t>(piece.ids.size());
  ids_ += piece.ids.size();
  if (piece.tokens >= 0) {
    gap_ = gap_ || (piece.tokens > generated_ + given && !piece.last);
    generated_ = piece.tokens;
  } else {
    generated_ += given;
  }
  waiting_.insert(waiting_.end(), piece.ids.begin(), piece.ids.end());
  if (piece.text.empty()) return {};
  std::vector<TokenId> ids = std::exchange(waiting_, {});
  if (piece.reason)  // with the end's, which has no text
    while (!ids.empty() && tokenizer_->is_special(ids.back()) && !(piece.spelled && ends_with(piece.text, ids.back())))
      ids.pop_back();
  const bool given_all = !std::exchange(gap_, false) && !ids.empty();
  if (given_all) {
    if (ids.size() == 1 && on_plain_) on_plain_(ids.front());
  } else {  // a piece may end inside of a word, so that the text since the last given id is encoded as one
    unsure_ += piece.text;
    tokens_.resize(sure_);
    ends_.resize(sure_);
    ids = rest_of_answer(unsure_);
  }
  bytes_ += piece.text.size();
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  ends_.resize(tokens_.size(), bytes_);
  if (given_all) fix_tokens();
  std::string certain = stops_.push(piece.text);
  text_ += certain;
  return certain;
}

void ServerAnswer::fix_tokens() {
  sure_ = tokens_.size();
  unsure_.clear();
}

std::string ServerAnswer::end() {
  std::string held = stops_.finish();
  text_ += held;
  if (!stops_.found()) return held;
  const auto kept = std::upper_bound(ends_.begin(), ends_.end(), text_.size()) - ends_.begin();
  tokens_.resize(static_cast<std::size_t>(kept));
  const std::size_t covered = kept == 0 ? 0 : ends_[static_cast<std::size_t>(kept) - 1];
  if (covered == text_.size()) return held;
  const std::vector<TokenId> rest = rest_of_answer(text_.substr(covered));
  tokens_.insert(tokens_.end(), rest.begin(), rest.end());
  return held;
}

std::size_t ServerAnswer::keep(std::size_t bytes) {
  auto kept = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), bytes) - ends_.begin());
  std::size_t covered = kept == 0 ? 0 : ends_[kept - 1];
  // Tokens of one event have one end; their own texts tell where each ends.
  std::size_t end = covered;
  for (std::size_t next = kept; next < tokens_.size() && end < bytes; ++next) {
    const std::string own = tokenizer_->decode(std::array{tokens_[next]}, false);
    if (own.empty() || own.size() > bytes - end || text_.compare(end, own.size(), own) != 0) break;
    end += own.size();
    const bool inside = end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80;
    if (inside) continue;  // of a character
    covered = end;
    kept = next + 1;
  }
  tokens_.resize(kept);
  ends_.resize(kept, covered);
  fix_tokens();
  return covered;
}

void ServerAnswer::append(std::string_view text, SpecialTokens special) {
  const PieceStart start = tokens_.empty() ? tokenizer_->start_inside() : tokenizer_->start_after(tokens_.back());
  const std::vector<TokenId> ids = tokenizer_->encode_piece(text, special, start);
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  ends_.resize(tokens_.size(), bytes_);
  fix_tokens();
}

}  // namespace baton
