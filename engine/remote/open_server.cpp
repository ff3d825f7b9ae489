// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/open_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/base/errors.h"
#include "engine/base/hash.h"
#include "engine/remote/message_text.h"
#include "engine/remote/remote_engine.h"
#include "engine/remote/server_json.h"
#include "engine/remote/server_tokenizer.h"

namespace baton {
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

class ServerOpening {
 public:
  ServerOpening(const ServerModel& model, const std::stop_token& stop)
      : model_(model), stop_(stop), server_(std::make_unique<ModelServer>(model.address)) {}

  std::shared_ptr<InferenceEngine> open() {
    try {
      if (model_.api == "llama") return llama(server_->fetch("/props", "", stop_));
      if (model_.api == "auto") {
        std::optional<JsonDocument> props = server_->find("/props", stop_);
        if (props && is_llama(**props)) return llama(std::move(*props));
      }
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
    if (!source.empty()) text.chat_template = ChatTemplate::parse(source, "its chat template");
    text.chat_options.bos_token = props.text_or("bos_token", "");
    text.chat_options.eos_token = props.text_or("eos_token", "");
    text.fingerprint = fmt::format("{:016x}", tokenizer->identity());
    return with_address(std::move(text));
  }

  std::shared_ptr<InferenceEngine> openai() {
    const std::string origin = "its answer to /v1/models";
    std::string name = model_.model;
    std::vector<std::string> known;
    const std::optional<JsonDocument> models = server_->find("/v1/models", stop_);
    if (const Json* data = models && (*models)->is_object() ? JsonFields(**models, origin).find("data") : nullptr) {
      for (const Json& one : data->is_array() ? *data : Json::array())
        known.push_back(JsonFields(one, origin, "data[].").text_or("id", ""));
    }
    if (name.empty() && known.size() == 1) name = known.front();
    if (name.empty())
      throw ModelError(known.empty() ? "it tells no model; expected 'model' in the workflow's file"
                                     : fmt::format("it has {} models; expected 'model' in the workflow's file, which "
                                                   "names one, for example '{}'",
                                                   known.size(), known.front()));
    RemoteEngine::Parts parts;
    parts.api = make_openai_api(name, model_.text != nullptr);
    ModelText text = model_.text ? *model_.text : message_text();
    const std::string key = server_->shown() + " " + name;
    text.fingerprint = fmt::format("{:016x}", hash_bytes(key.data(), key.size()));
    parts.text = with_address(std::move(text));
    parts.info.device_description = fmt::format("server at {}, {}", server_->shown(), name);
    return engine(std::move(parts));
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
    parts.info.kv.layers = 1;
    parts.slowdown = model_.slowdown;
    parts.server = std::move(server_);
    return std::make_shared<RemoteEngine>(std::move(parts));
  }

  const ServerModel& model_;
  const std::stop_token& stop_;
  std::unique_ptr<ModelServer> server_;
};

}  // namespace

std::shared_ptr<InferenceEngine> open_server(const ServerModel& model, const std::stop_token& stop) {
  return ServerOpening(model, stop).open();
}

}  // namespace baton
