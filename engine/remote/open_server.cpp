// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/open_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/base/errors.h"
#include "engine/base/hash.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/utf8.h"
#include "engine/remote/remote_engine.h"
#include "engine/remote/server_api.h"
#include "engine/text/tokenizer.h"

namespace baton {
namespace {

constexpr double kMaxPause = 8.0, kMaxAsked = 60.0;  // seconds
constexpr std::chrono::milliseconds kStall(30'000);  // for small answers
constexpr std::size_t kMaxAnswer = std::size_t{32} << 20;
constexpr std::size_t kMaxAddress = 2048;

/// Without what may be secret.
std::string without_secrets(const std::string& url) {
  const std::size_t host = url.find("://") + 3;
  const std::size_t end = std::min(url.find_first_of("/?#", host), url.size());
  const std::size_t user = url.rfind('@', end);
  std::string out = url.substr(0, host);
  out += url.substr(user != std::string::npos && user >= host ? user + 1 : host);
  return out.substr(0, out.find_first_of("?#"));
}

}  // namespace

std::optional<double> AttemptPauses::next(const HttpEnd& end) {
  if (!end.passing || end.wait_seconds > kMaxAsked) return std::nullopt;
  if (end.wait_seconds > 0) return ++asked_ < kMaxAttempts ? std::optional(end.wait_seconds) : std::nullopt;
  if (pause_ > left_) return std::nullopt;
  left_ -= pause_;
  return std::exchange(pause_, std::min(2 * pause_, kMaxPause));
}

ModelServer::ModelServer(ServerAddress address) : address_(std::move(address)) {
  std::string& url = address_.endpoint;
  const bool http = url.starts_with("http://") || url.starts_with("https://");
  const bool plain = std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c != '\x7F'; });
  if (!http || !plain || url.size() > kMaxAddress || url.find_first_of("?#") != std::string::npos)
    throw BackendError(fmt::format("invalid endpoint '{}'; expected http://host:port or https://host, without a query",
                                   http && plain ? without_secrets(url) : "..."));
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with("/v1")) url.resize(url.size() - 3);
  if (address_.key.find_first_of("\r\n") != std::string::npos || address_.key.find('\0') != std::string::npos)
    throw BackendError("invalid key of a server: it holds the end of a line");
  shown_ = without_secrets(url);
  loop_ = make_http_loop();
}

HttpCall ModelServer::call(const std::string& path, std::string body) const {
  HttpCall call;
  call.url = address_.endpoint + path;
  call.body = std::move(body);
  call.key = address_.key;
  return call;
}

std::string ModelServer::problem(const HttpEnd& end) const {
  if (!end.problem.empty()) return problem(end.problem);
  const std::string words = words_of_error(end.body);
  const bool absent =
      (end.status == 404 || end.status == 405 || end.status == 501) && end.url.starts_with(address_.endpoint);
  const std::string path = absent ? end.url.substr(address_.endpoint.size()) : "";
  return problem(fmt::format("it answered {}with status {}{}{}", absent ? path + " " : "", end.status,
                             words.empty() ? "" : ": ", words));
}

/// What the waiting thread and the loop share; the loop may hold it longer.
struct ModelServer::Waiting {
  std::mutex mutex;
  std::condition_variable_any changed;
  bool over = false;
  HttpEnd end;
  std::string answer;
  HttpLoop::CallId id = 0;  // the loop's thread
};

HttpEnd ModelServer::wait(const std::string& path, const std::string& body, std::string& answer,
                          const std::stop_token& stop) {
  auto waiting = std::make_shared<Waiting>();
  HttpCall request = call(path, body);
  request.stall = kStall;
  request.max_bytes = kMaxAnswer;
  request.on_bytes = [waiting](std::string_view bytes) { waiting->answer += bytes; };
  request.on_end = [waiting](HttpEnd end) {
    const std::lock_guard lock(waiting->mutex);
    waiting->end = std::move(end);
    waiting->over = true;
    waiting->changed.notify_all();
  };
  loop_->post([this, waiting, request = std::move(request)]() mutable {
    try {
      waiting->id = loop_->start(std::move(request));
    } catch (const std::exception& error) {
      const std::lock_guard lock(waiting->mutex);
      try_to([&] { waiting->end.problem = message_of(error); });
      waiting->over = true;
      waiting->changed.notify_all();
    }
  });
  std::unique_lock lock(waiting->mutex);
  if (!waiting->changed.wait(lock, stop, [&] { return waiting->over; })) {
    loop_->post([this, waiting] { loop_->cancel(waiting->id); });
    throw Interrupted();
  }
  answer = std::move(waiting->answer);
  return std::move(waiting->end);
}

JsonDocument ModelServer::fetch(const std::string& path, const std::string& body, const std::stop_token& stop) {
  AttemptPauses pauses;
  while (true) {
    std::string answer;
    const HttpEnd end = wait(path, body, answer, stop);
    if (end.ok()) {
      try {
        return parse_server_json(answer, "its answer to " + path);
      } catch (const ModelError& error) {
        throw BackendError(problem(error.what()));
      }
    }
    const std::optional<double> pause = pauses.next(end);
    if (!pause) throw BackendError(problem(end));
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    never.wait_for(lock, stop, std::chrono::duration<double>(*pause), [] { return false; });
    if (stop.stop_requested()) throw Interrupted();
  }
}

std::optional<JsonDocument> ModelServer::find(const std::string& path, const std::stop_token& stop,
                                              const std::string& body) {
  std::string answer;
  const HttpEnd end = wait(path, body, answer, stop);
  if (end.status == 0 || end.status == 401 || end.status == 403 || end.status == 503 || !end.problem.empty())
    return fetch(path, body, stop);  // it is not there, loads its model, or wants a key
  if (!end.ok()) return std::nullopt;
  try {
    return parse_server_json(answer, path);
  } catch (const ModelError&) {
    return std::nullopt;
  }
}

// The tokenizer of a llama-server, asked over HTTP, so that no tokenizer file is needed.

/// Members throw BackendError where the server does not answer, so they may take as long as that does. What it says of
/// single tokens is remembered.
class ServerTokenizer final : public Tokenizer {
 public:
  /// `size`: of the vocabulary. Its calls must not be made on the thread of the server's loop.
  ServerTokenizer(std::shared_ptr<ModelServer> server, std::uint64_t identity, std::int32_t size);

  std::vector<TokenId> encode_piece(std::string_view piece, SpecialTokens special, PieceStart start,
                                    const std::stop_token& stop) const override;
  PieceStart start_after(TokenId last) const override;
  PieceStart start_inside() const override;
  std::vector<TokenId> encode_with_template(std::string_view text, const std::stop_token& stop) const override;
  std::string decode(std::span<const TokenId> ids, bool skip_special) const override;
  /// Throws ModelError for a token that is a part of a character: the server tells texts, not bytes.
  std::string token_bytes(TokenId id) const override;
  void read_tokens(const ReadToken& read, const std::stop_token& stop) const override;
  std::optional<TokenId> token_id(std::string_view token) const override;
  bool is_special(TokenId id) const override;
  std::int32_t size() const override { return size_; }
  /// All of the text comes at the end.
  std::unique_ptr<DecodeStream> stream(bool skip_special) const override;

  /// The token has a text of its own, so it is not special.
  void is_plain(TokenId id) const;

 private:
  std::vector<TokenId> ask(std::string_view text, bool special, bool template_tokens,
                           const std::stop_token& stop) const;
  std::string text_of(std::span<const TokenId> ids) const;
  bool marks_starts() const;

  std::shared_ptr<ModelServer> server_;
  std::int32_t size_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<TokenId, bool> special_;
  mutable std::optional<bool> marks_starts_;
};

namespace {

class LateStream final : public DecodeStream {
 public:
  LateStream(const ServerTokenizer& tokenizer, bool skip_special) : tokenizer_(tokenizer), skip_(skip_special) {}
  std::string push(TokenId id) override {
    ids_.push_back(id);
    return {};
  }
  std::string finish() override { return tokenizer_.decode(std::exchange(ids_, {}), skip_); }

 private:
  const ServerTokenizer& tokenizer_;
  bool skip_;
  std::vector<TokenId> ids_;
};

}  // namespace

ServerTokenizer::ServerTokenizer(std::shared_ptr<ModelServer> server, std::uint64_t identity, std::int32_t size)
    : Tokenizer(identity), server_(std::move(server)), size_(size) {}

std::vector<TokenId> ServerTokenizer::ask(std::string_view text, bool special, bool template_tokens,
                                          const std::stop_token& stop) const {
  if (text.empty() && !template_tokens) return {};
  RequestBody body;
  body.set("content", utf8::repaired(text)).set("add_special", template_tokens).set("parse_special", special);
  const JsonDocument answer = server_->fetch("/tokenize", body.text(), stop);
  try {
    const std::string origin = "its answer to /tokenize";
    const JsonFields fields(*answer, origin);
    if (fields.find("tokens") == nullptr) fields.fail("tokens", "expected a list of ids");
    return fields.integers("tokens", 0, size_ - 1);
  } catch (const ModelError& error) {
    throw BackendError(server_->problem(error.what()));
  }
}

/// True if the server puts a blank before each text, as it does for models with SentencePiece's rule.
bool ServerTokenizer::marks_starts() const {
  {
    const std::lock_guard lock(mutex_);
    if (marks_starts_) return *marks_starts_;
  }
  std::vector<TokenId> pieces = ask("\n", false, false, {});
  const std::vector<TokenId> letter = ask("a", false, false, {});
  pieces.insert(pieces.end(), letter.begin(), letter.end());
  const bool marks = ask("\na", false, false, {}) != pieces;
  const std::lock_guard lock(mutex_);
  return *(marks_starts_ = marks);
}

PieceStart ServerTokenizer::start_inside() const {
  const bool starts = !marks_starts();
  return {starts, starts, starts, false};
}

PieceStart ServerTokenizer::start_after(TokenId last) const {
  return !marks_starts() || is_special(last) ? PieceStart{} : start_inside();
}

std::vector<TokenId> ServerTokenizer::encode_piece(std::string_view piece, SpecialTokens special, PieceStart start,
                                                   const std::stop_token& stop) const {
  const bool recognise = special == SpecialTokens::recognise;
  if (start.part || piece.empty()) return ask(piece, recognise, false, stop);
  // Behind a line break no blank is put before the piece. If the vocabulary merges the two, it keeps its blank.
  const std::vector<TokenId> before = ask("\n", false, false, stop);
  std::vector<TokenId> ids = ask("\n" + std::string(piece), recognise, false, stop);
  if (ids.size() < before.size() || !std::equal(before.begin(), before.end(), ids.begin()))
    return ask(piece, recognise, false, stop);
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(before.size()));
  return ids;
}

std::vector<TokenId> ServerTokenizer::encode_with_template(std::string_view text, const std::stop_token& stop) const {
  return ask(text, true, true, stop);
}

std::string ServerTokenizer::text_of(std::span<const TokenId> ids) const {
  if (ids.empty()) return {};
  const JsonDocument answer = server_->fetch("/detokenize", RequestBody().set("tokens", ids).text());
  const std::string origin = "its answer to /detokenize";
  try {
    return JsonFields(*answer, origin).text_or("content", "");
  } catch (const ModelError& error) {
    throw BackendError(server_->problem(error.what()));
  }
}

std::string ServerTokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::vector<TokenId> known;
  for (const TokenId id : ids) {
    if (id >= 0 && id < size_ && !(skip_special && is_special(id))) known.push_back(id);
  }
  return text_of(known);
}

std::string ServerTokenizer::token_bytes(TokenId id) const {
  if (id < 0 || id >= size_ || is_special(id)) return {};
  std::string text = text_of(std::array{id});
  if (text.find(utf8::kReplacement) != std::string::npos)
    throw ModelError(server_->problem(fmt::format("token {} is a part of a character, which it does not tell", id)));
  return text;
}

void ServerTokenizer::read_tokens(const ReadToken&, const std::stop_token&) const {
  throw ModelError(server_->problem("its vocabulary cannot be read token by token"));
}

std::optional<TokenId> ServerTokenizer::token_id(std::string_view token) const {
  const std::vector<TokenId> ids = ask(token, true, false, {});
  if (ids.size() != 1 || text_of(ids) != token) return std::nullopt;
  return ids.front();
}

void ServerTokenizer::is_plain(TokenId id) const {
  const std::lock_guard lock(mutex_);
  special_.try_emplace(id, false);
}

/// A special token's text becomes the token if special tokens are recognised, and other tokens if they are not.
/// What the server does not tell counts as special: such tokens are handed on as text.
bool ServerTokenizer::is_special(TokenId id) const {
  if (id < 0 || id >= size_) return false;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = special_.find(id); known != special_.end()) return known->second;
  }
  bool special = true;
  const bool told = try_to([&] {
    const std::string text = text_of(std::array{id});
    const std::vector<TokenId> alone = {id};
    special = ask(text, true, false, {}) == alone && ask(text, false, false, {}) != alone;
  });
  const std::lock_guard lock(mutex_);
  if (told) special_[id] = special;
  return special;
}

std::unique_ptr<DecodeStream> ServerTokenizer::stream(bool skip_special) const {
  return std::make_unique<LateStream>(*this, skip_special);
}

namespace {

constexpr std::int32_t kMaxVocabulary = 1 << 24;

/// True for the answer of a llama-server to /props.
bool is_llama(const Json& props) {
  return props.is_object() && props.contains("default_generation_settings") && props.contains("total_slots");
}

/// The model, as a llama-server names it.
std::string model_of(std::string_view props) {
  const std::string origin = "its answer to /props";
  const JsonDocument document = parse_server_json(props, origin);
  return JsonFields(*document, origin).text_or("model_path", "");
}

/// A model of a list at /v1/models.
struct ListedModel {
  std::string id, owner, root;  // its owner is the name of the server's program, if that says so
  std::int32_t context = 0;     // 0: not told
};

std::vector<ListedModel> listed_models(const Json& answer) {
  const std::string origin = "its answer to /v1/models";
  std::vector<ListedModel> models;
  const Json* data = answer.is_object() ? JsonFields(answer, origin).find("data") : nullptr;
  for (const Json& one : data != nullptr && data->is_array() ? *data : Json::array()) {
    const JsonFields fields(one, origin, "data[].");
    ListedModel& model = models.emplace_back();
    model.id = fields.text_or("id", "");
    model.owner = fields.text_or("owned_by", "");
    model.root = fields.text_or("root", "");
    try_to([&] { model.context = fields.integer_or("max_model_len", 0, 0, kMaxServerCount); });  // -1: unknown
  }
  return models;
}

/// The model of that name and where it came from; if the server does not have it, what it has.
std::string identity_of(const std::vector<ListedModel>& models, const std::string& id) {
  std::string others;
  for (const ListedModel& one : models) {
    if (one.id == id) return one.id + " " + one.root;
    others += (others.empty() ? "" : ", ") + one.id;
  }
  return others;
}

class ServerOpening {
 public:
  ServerOpening(const ServerModel& model, const std::stop_token& stop)
      : model_(model), stop_(stop), server_(std::make_unique<ModelServer>(model.address)) {}

  std::shared_ptr<InferenceEngine> open() {
    try {
      if (model_.api == "llama") return llama(server_->fetch("/props", "", stop_));
      if (model_.api == "auto") {
        std::optional<JsonDocument> props = server_->find("/props", stop_);
        if (props && is_llama(**props)) return llama(*props);
      }
      if (const std::optional<JsonDocument> list = server_->find("/v1/models", stop_)) models_ = listed_models(**list);
      if (model_.api == "vllm") return vllm();
      if (model_.api == "sglang") return sglang();
      if (model_.api == "auto" && model_.text && is_of("vllm") && info("/version")) return vllm();
      if (model_.api == "auto" && model_.text && is_of("sglang") && sglang_info()) return sglang();
      return openai();
    } catch (const ModelError& error) {
      throw ModelError(server_->problem(error.what()));
    }
  }

 private:
  std::shared_ptr<InferenceEngine> llama(const JsonDocument& props) {
    const std::string origin = "its answer to /props";
    if (!is_llama(*props)) throw ModelError(origin + " is not that of a llama-server");
    const JsonFields fields(*props, origin);
    RemoteEngine::Parts parts;
    parts.identity_path = "/props";
    parts.identity_of = model_of;
    parts.identity = fields.text_or("model_path", "");
    check_name(parts.identity, fields.text_or("model_alias", ""));
    parts.slots = fields.integer_or("total_slots", 1, 0, 1 << 16);
    if (!fields.flag_or("endpoint_slots", false)) parts.slots = 0;  // it does not tell which are idle
    const JsonFields defaults(*fields.find("default_generation_settings"), origin, "default_generation_settings.");
    parts.info.context = defaults.integer_or("n_ctx", 0, 0, kMaxServerCount);
    parts.text = model_.text ? with_address(*model_.text) : llama_text(fields, parts);
    parts.info.device_description =
        fmt::format("llama-server at {}, {} slots, {}", server_->shown(), parts.slots, parts.identity);
    parts.api = make_llama_api();
    return engine(std::move(parts));
  }

  /// The vocabulary and the template of the server.
  std::shared_ptr<const ModelText> llama_text(const JsonFields& props, RemoteEngine::Parts& parts) {
    const std::string origin = "its answer to /v1/models";
    const JsonDocument models = server_->fetch("/v1/models", "", stop_);
    const JsonFields fields(*models, origin);
    const Json* data = fields.find("data");
    if (data == nullptr || !data->is_array() || data->empty()) throw ModelError(origin + " names no model");
    const JsonFields first(data->front(), origin, "data[0].");
    const Json* meta = first.find("meta");
    if (meta == nullptr) throw ModelError(origin + " does not tell the size of its vocabulary; give a 'tokenizer'");
    const std::int32_t size = JsonFields(*meta, origin, "data[0].meta.").integer("n_vocab", 1, kMaxVocabulary);
    const std::string source = props.text_or("chat_template", "");
    const std::string key = fmt::format("{} {} {}", parts.identity, size, source);
    const auto tokenizer = std::make_shared<const ServerTokenizer>(std::make_shared<ModelServer>(model_.address),
                                                                   hash_bytes(key.data(), key.size()), size);
    parts.on_plain = [tokenizer](TokenId id) { tokenizer->is_plain(id); };
    ModelText text;
    text.tokenizer = tokenizer;
    text.chat_options.merges_roles = true;
    if (!source.empty()) text.chat_template = ChatTemplate::parse(source, "its chat template");
    text.chat_options.bos_token = props.text_or("bos_token", "");
    text.chat_options.eos_token = props.text_or("eos_token", "");
    if (text.chat_template) text.thinking = thinking_form_of(*text.chat_template, text.chat_options, stop_);
    text.fingerprint = fmt::format("{:016x}", tokenizer->identity());
    return with_address(std::move(text));
  }

  /// The model that the workflow's file names, or the only one.
  ListedModel chosen() const {
    const auto named =
        std::find_if(models_.begin(), models_.end(), [&](const auto& one) { return one.id == model_.model; });
    if (named != models_.end()) return *named;
    if (!model_.model.empty()) return {model_.model, {}, {}, 0};
    if (models_.size() == 1) return models_.front();
    throw ModelError(models_.empty() ? "it tells no model; expected 'model' in the workflow's file"
                                     : fmt::format("it has {} models; expected 'model' in the workflow's file, which "
                                                   "names one, for example '{}'",
                                                   models_.size(), models_.front().id));
  }

  bool is_of(std::string_view owner) const {
    return std::any_of(models_.begin(), models_.end(), [&](const auto& one) { return one.owner == owner; });
  }

  /// What the server tells of itself; nothing: it does not.
  std::optional<JsonDocument> info(const std::string& path, const std::string& body = {}) {
    try {
      std::optional<JsonDocument> answer = server_->find(path, stop_, body);
      if (answer && (*answer)->is_object()) return answer;
    } catch (const BackendError&) {  // its key may be for less
    }
    return std::nullopt;
  }

  std::shared_ptr<InferenceEngine> vllm() {
    const std::optional<JsonDocument> answer = info("/version");
    const std::string origin = "its answer to /version";
    const std::string version = answer ? JsonFields(**answer, origin).text_or("version", "") : "";
    const ListedModel model = chosen();
    return with_ids(make_vllm_api(model.id, version), model, "vLLM", version);
  }

  std::optional<JsonDocument> sglang_info() {
    std::optional<JsonDocument> answer = info("/server_info");
    return answer ? std::move(answer) : info("/get_server_info");  // the older name
  }

  std::shared_ptr<InferenceEngine> sglang() {
    bool deltas = false, caches = true;
    std::string version;
    if (const std::optional<JsonDocument> answer = sglang_info()) {
      const std::string origin = "its answer to /server_info";
      const JsonFields fields(**answer, origin);
      deltas = fields.flag_or("incremental_streaming_output", fields.flag_or("stream_output", false));
      caches = !fields.flag_or("disable_radix_cache", false);
      version = fields.text_or("version", "");
    }
    return with_ids(make_sglang_api(deltas, caches), chosen(), "SGLang", version);
  }

  /// A server that takes token ids and tells neither its template nor which tokens are special.
  std::shared_ptr<InferenceEngine> with_ids(std::unique_ptr<const ServerApi> api, const ListedModel& model,
                                            const std::string& program, const std::string& version) {
    if (!model_.text)
      throw ModelError(
          fmt::format("api '{}' needs 'tokenizer' in the workflow's file: the server tells neither its chat template "
                      "nor which tokens are special",
                      api->name()));
    check_tokenizer(model.id);
    RemoteEngine::Parts parts;
    if (!models_.empty()) parts.identity_path = "/v1/models";
    parts.identity_of = [id = model.id](std::string_view json) {
      return identity_of(listed_models(*parse_server_json(json, "its answer to /v1/models")), id);
    };
    parts.identity = identity_of(models_, model.id);
    parts.info.context = model.context;
    parts.text = with_address(*model_.text);
    parts.info.device_description =
        fmt::format("{}{}{} at {}, {}", program, version.empty() ? "" : " ", version, server_->shown(), model.id);
    parts.api = std::move(api);
    return engine(std::move(parts));
  }

  std::shared_ptr<InferenceEngine> openai() {
    const std::string name = chosen().id;
    RemoteEngine::Parts parts;
    parts.api = make_openai_api(name, model_.text != nullptr);
    ModelText text = model_.text ? *model_.text : message_text();
    if (!model_.text && model_.api == "auto") warn_of_messages(text);
    // English has about 4 bytes in a token, other languages fewer. Too few bytes forget a conversation early, too many
    // make a prompt that the server refuses.
    constexpr std::int32_t kBytesPerToken = 3;
    if (!model_.text) parts.info.ids_per_token = kBytesPerToken;
    const std::string key = server_->shown() + " " + name;
    text.fingerprint = fmt::format("{:016x}", hash_bytes(key.data(), key.size()));
    parts.text = with_address(std::move(text));
    parts.info.device_description = fmt::format("server with OpenAI's API at {}, {}", server_->shown(), name);
    return engine(std::move(parts));
  }

  /// A server that tokenizes, as vLLM does, has to make the same ids of a text with letters, digits, signs and blanks.
  void check_tokenizer(const std::string& model) {
    static const std::string sample = "Hello, W\u00F6rld: 12 + 345?\n\tdef f(x): return {\"a\": [x]}  \u6F22\u5B57";
    const std::optional<JsonDocument> answer = info(
        "/tokenize", RequestBody().set("model", model).set("prompt", sample).set("add_special_tokens", false).text());
    if (!answer || !(*answer)->is_object()) return;
    const Json* told = JsonFields(**answer, "its answer to /tokenize").find("tokens");
    if (told == nullptr || !told->is_array() || told->empty()) return;
    const std::vector<TokenId> ours = model_.text->tokenizer->encode(sample, SpecialTokens::as_text);
    if (*told == Json(ours)) return;
    throw ModelError(
        fmt::format("its tokenizer is not that of 'tokenizer' in the workflow's file: it makes {} tokens of a sample "
                    "text, beginning with {}, and the file's {}, beginning with {}",
                    told->size(), beginning(json_text((*told)[0]), 20), ours.size(), ours.front()));
  }

  /// A server that could do more with a tokenizer in the workflow's file.
  void warn_of_messages(ModelText& text) const {
    for (const auto& [owner, program] : {std::pair("vllm", "vLLM"), std::pair("sglang", "SGLang")}) {
      if (is_of(owner))
        text.warnings.push_back(
            fmt::format("server {} is {}, and is used as any other with OpenAI's API, without "
                        "constraints and prompts sent ahead: 'tokenizer' of the model is missing",
                        server_->shown(), program));
    }
  }

  std::shared_ptr<const ModelText> with_address(ModelText text) const {
    text.path = server_->shown();
    return std::make_shared<const ModelText>(std::move(text));
  }

  void check_name(const std::string& path, const std::string& alias) const {
    if (model_.model.empty() || model_.model == path || model_.model == alias) return;
    throw ModelError(fmt::format("it has the model '{}'; expected '{}'", alias.empty() ? path : alias, model_.model));
  }

  std::shared_ptr<InferenceEngine> engine(RemoteEngine::Parts parts) {
    if (model_.context > 0)
      parts.info.context = parts.info.context > 0 ? std::min(parts.info.context, model_.context) : model_.context;
    parts.info.device = "server";
    parts.info.kv.tokenizer = parts.text->tokenizer->identity();
    parts.info.kv.shapes.resize(1);
    parts.slowdown = model_.slowdown;
    parts.patience = model_.patience;
    parts.server = std::move(server_);
    return std::make_shared<RemoteEngine>(std::move(parts));
  }

  const ServerModel& model_;
  const std::stop_token& stop_;
  std::unique_ptr<ModelServer> server_;
  std::vector<ListedModel> models_;
};

}  // namespace

std::shared_ptr<InferenceEngine> open_server(const ServerModel& model, const std::stop_token& stop) {
  return ServerOpening(model, stop).open();
}

}  // namespace baton
