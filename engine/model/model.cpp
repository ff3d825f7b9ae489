// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/backend/host_operations.h"
#include "engine/base/errors.h"
#include "engine/base/files.h"
#include "engine/base/json_fields.h"
#include "engine/base/system/process.h"
#include "engine/model/checkpoint_weights.h"
#include "engine/model/gguf.h"
#include "engine/model/layers/layer.h"
#include "engine/model/safetensors.h"
#include "engine/model/sampler.h"

namespace baton {

namespace {

ModelConfig checked_config(const ModelFiles& files, const std::filesystem::path& path, const ModelOptions& options) {
  if (options.dtype == DType::f16 || options.kv_dtype == DType::f16)
    throw ModelError("weights and KV cache are kept in bf16 or f32, not f16");
  if (options.activations == DType::f16) throw ModelError("activations are f32 or bf16, not f16");
  if (options.activations == DType::bf16 && options.dtype != DType::bf16)
    throw ModelError("activations in bf16 need weights in bf16, not f32");
  ModelConfig config = files.config();
  if (options.context < 0 || options.context > config.context)
    throw ModelError(fmt::format("{}: a context of {} tokens was asked for, the model's own is {}", path.string(),
                                 options.context, config.context));
  return config;
}

ModelText checked_text(const ModelFiles& files, const std::filesystem::path& path, const ModelConfig& config) {
  ModelText text = files.text();
  if (text.tokenizer->size() > config.vocabulary)
    throw ModelError(fmt::format("{}: the tokenizer has ids up to {}, but the model's vocabulary is {}",
                                 files.tokenizer_file(), text.tokenizer->size() - 1, config.vocabulary));
  text.path = path;
  if (text.chat_template) text.thinking = thinking_form_of(*text.chat_template, text.chat_options);
  return text;
}

/// Requests a stop when it goes.
struct StopAtEnd {
  std::stop_source source;
  ~StopAtEnd() { source.request_stop(); }
};

Model model_of(const ModelFiles& files, const ModelOptions& options, ModelConfig config, ModelText text) {
  ModelConfig as_used = config;  // LongRoPE depends on the context that is asked for
  if (options.context > 0) as_used.context = options.context;
  LayerRopes ropes(as_used);
  Model model{std::move(text), std::move(config), options, std::move(ropes), {}, files.generation()};
  if (options.context == 0) model.options.context = model.config.context;
  return model;
}

}  // namespace

Model describe_model(const ModelFiles& files, const std::filesystem::path& path, const ModelOptions& options) {
  ModelConfig config = checked_config(files, path, options);
  ModelText text = checked_text(files, path, config);
  return model_of(files, options, std::move(config), std::move(text));
}

KvLayout Model::kv_layout() const {
  KvLayout layout;
  for (std::int32_t layer = 0; layer < config.layers; ++layer) layout.shapes.push_back(kv_shape(layer));
  layout.state_bytes = static_cast<std::size_t>(state_offsets(config).back()) * sizeof(float);
  return layout;
}

std::shared_ptr<const Model> open_model(Backend& backend, const std::filesystem::path& path,
                                        const ModelOptions& options) {
  std::unique_ptr<ModelFiles> files = open_model_files(path);
  ModelConfig config = checked_config(*files, path, options);
  const WeightSource& source = files->weights();
  const std::stop_source hashing;
  std::future<std::string> fingerprint =
      std::async(std::launch::async, [&files, token = hashing.get_token()] { return files->fingerprint(token); });
  const StopAtEnd end{hashing};  // nobody waits for the hash of a model that is not opened
  // A tokenizer takes about as long to read as half a gigabyte of weights. Its mistakes end the loading of those.
  std::future<ModelText> text = std::async([&] { return checked_text(*files, path, config); });
  std::optional<ModelText> read;
  const auto take_text = [&] {
    read = text.get();
    return_free_memory();  // a vocabulary of 152,000 tokens leaves 32 MB behind
  };
  const auto progress = [&](double fraction) {
    if (!read && text.wait_for(std::chrono::seconds(0)) == std::future_status::ready) take_text();
    if (options.progress) options.progress(fraction);
  };
  Weights weights = load_weights(backend, config, source, options.dtype, progress, options.activations);
  if (!read) take_text();
  read->fingerprint = fingerprint.get();
  auto model = std::make_shared<Model>(model_of(*files, options, std::move(config), std::move(*read)));
  model->weights = std::move(weights);
  files.reset();
  return_free_memory();
  return model;
}

namespace {

struct Entry {
  std::string_view name;
  std::string_view config;  // as in the model's config.json
  std::int32_t rectify_start = 0, rectify_detect = 0, rectify_end = 0;
};

constexpr Entry kShapes[] = {
    {"llama-3.1-8b", R"({
       "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
       "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
       "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
       "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 8192},
       "tie_word_embeddings": false, "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009]})",
     1, 3, 18},
    {"qwen3-0.6b", R"({
       "architectures": ["Qwen3ForCausalLM"], "hidden_size": 1024, "intermediate_size": 3072,
       "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
       "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
       "tie_word_embeddings": true, "bos_token_id": 151643, "eos_token_id": 151645})",
     2, 3, 19},
    {"qwen2.5-7b", R"({
       "architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944,
       "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
       "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
       "tie_word_embeddings": false, "bos_token_id": 151643, "eos_token_id": 151645})",
     3, 4, 22},
    {"mistral-7b", R"({
       "architectures": ["MistralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
       "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32768,
       "max_position_embeddings": 32768, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null,
       "tie_word_embeddings": false, "bos_token_id": 1, "eos_token_id": 2})"},
    {"smollm2-135m", R"({
       "architectures": ["LlamaForCausalLM"], "hidden_size": 576, "intermediate_size": 1536,
       "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
       "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "rope_theta": 100000,
       "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2})"},
    {"nano", R"({
       "architectures": ["LlamaForCausalLM"], "hidden_size": 192, "intermediate_size": 512,
       "num_hidden_layers": 10, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 32,
       "vocab_size": 1280, "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
       "tie_word_embeddings": true, "eos_token_id": 2})"},
};

const Entry& find_entry(std::string_view name) {
  const auto* entry =
      std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Entry& one) { return one.name == name; });
  if (entry == std::end(kShapes)) {
    throw ModelError(fmt::format("unknown shape '{}'; expected one of {}", name, fmt::join(shape_names(), ", ")));
  }
  return *entry;
}

}  // namespace

const std::vector<std::string>& shape_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : kShapes) all.emplace_back(entry.name);
    return all;
  }();
  return names;
}

Shape find_shape(std::string_view name, std::int32_t layers) {
  const Entry& entry = find_entry(name);
  Shape shape{std::string(name), parse_config(entry.config, std::string(name)), entry.rectify_start,
              entry.rectify_detect, entry.rectify_end};
  if (layers > 0) {
    shape.config.layers = layers;
    shape.config.window.resize(static_cast<std::size_t>(layers), shape.config.window.back());
    if (!shape.config.rope_kinds.empty())
      shape.config.rope_kinds.resize(static_cast<std::size_t>(layers), shape.config.rope_kinds.back());
  }
  return shape;
}

std::string shape_config(std::string_view name) { return std::string(find_entry(name).config); }

std::int64_t parameter_count(const ModelConfig& c) {
  const std::int64_t width = c.width, inputs = c.token_input.width;
  const std::int64_t shared = c.mixture.shared_width > 0 ? width + 3 * width * c.mixture.shared_width : 0;
  const std::int64_t biases = c.mixture.biases ? 1 + 2 * c.mixture.ffn_width + width : 0;
  const std::int64_t beside = c.mixture.beside_mlp ? 4 * width + c.mixture.experts : 0;
  const std::int64_t mixture = c.mixture.experts * (width + 3 * width * c.mixture.ffn_width + biases) + shared + beside;
  std::int64_t all = width + c.vocabulary * width * (c.tied_embeddings ? 1 : 2);
  if (inputs > 0) all += c.layers * inputs * (c.token_input.rows + width) + inputs;
  for (std::int32_t layer = 0; layer < c.layers; ++layer) {
    const std::int64_t head_dim = c.head_dim_of(layer), q = c.heads * head_dim;
    const std::int64_t k = c.kv_layer(layer) == layer ? c.kv_heads_of(layer) * head_dim : 0;
    const std::int64_t v = c.keys_as_values(layer) ? 0 : k, ffn = c.ffn_width_of(layer);
    all += width * (q + k + v) + q * width;
    if (c.pre_norms) all += 2 * width;
    if (c.post_norms) all += 2 * width;
    if (c.qk_norm) all += c.qk_norm_of_row ? q + k : (k > 0 ? 2 : 1) * head_dim;
    if (c.attention_bias) all += q + k + v;
    if (c.output_bias) all += width;
    if (c.sinks) all += c.heads;
    if (c.layer_scales) all += 1;
    if (inputs > 0) all += 2 * inputs * width + width;
    if (c.mixture.in(layer)) all += mixture;
    if (!c.mixture.in(layer) || c.mixture.beside_mlp) all += 3 * width * ffn + (c.mlp_bias ? 2 * ffn + width : 0);
  }
  return all;
}

// make_random_model: every weight is a function of the seed, its matrix and its index in the matrix.

namespace {

class RandomWeights {
 public:
  RandomWeights(Backend& backend, const ModelOptions& options, std::uint64_t seed)
      : backend_(backend),
        dtype_(options.dtype),
        activations_(options.activations == DType::bf16 ? Activations::bf16 : Activations::f32),
        seed_(seed) {}

  std::unique_ptr<Matrix> matrix(std::int64_t rows, std::int64_t cols) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(cols));
    const std::uint64_t seed = scrambled(seed_ ^ scrambled(++matrices_));
    auto matrix = backend_.random_matrix(rows, cols, dtype_, seed, deviation, activations_);
    bytes_ += matrix->bytes;
    return matrix;
  }

  std::vector<float> constant(std::int64_t count, float value) {
    bytes_ += static_cast<std::size_t>(count) * sizeof(float);
    return std::vector<float>(static_cast<std::size_t>(count), value);
  }

  std::size_t bytes() const { return bytes_; }

 private:
  Backend& backend_;
  DType dtype_;
  Activations activations_;
  std::uint64_t seed_;
  std::uint64_t matrices_ = 0;
  std::size_t bytes_ = 0;
};

LayerWeights make_layer(RandomWeights& random, const ModelConfig& c, std::int32_t index) {
  const std::int64_t q = std::int64_t{c.heads} * c.head_dim, kv = std::int64_t{c.kv_heads} * c.head_dim;
  const std::int64_t ffn = c.ffn_width;
  LayerWeights layer;
  if (c.pre_norms) layer.input_norm = random.constant(c.width, 1.0f);
  layer.qkv = random.matrix(q + 2 * kv, c.width);
  if (c.attention_bias) layer.qkv_bias = random.constant(q + 2 * kv, 0.0f);
  if (c.qk_norm) {
    layer.q_norm = random.constant(c.qk_norm_of_row ? q : c.head_dim, 1.0f);
    layer.k_norm = random.constant(c.qk_norm_of_row ? kv : c.head_dim, 1.0f);
  }
  layer.output = random.matrix(c.width, q);
  if (c.output_bias) layer.output_bias = random.constant(c.width, 0.0f);
  if (c.sinks) layer.sinks = random.constant(c.heads, 0.0f);
  if (c.pre_norms) layer.mlp_norm = random.constant(c.width, 1.0f);
  if (c.post_norms) layer.attention_post_norm = layer.mlp_post_norm = random.constant(c.width, 1.0f);
  if (c.mixture.in(index)) {
    layer.router = random.matrix(c.mixture.experts, c.width);
    for (std::int32_t expert = 0; expert < c.mixture.experts; ++expert) {
      auto gate_up = random.matrix(2 * std::int64_t{c.mixture.ffn_width}, c.width);
      layer.experts.push_back({std::move(gate_up), random.matrix(c.width, c.mixture.ffn_width)});
      if (!c.mixture.biases) continue;
      layer.experts.back().gate_up_bias = random.constant(2 * std::int64_t{c.mixture.ffn_width}, 0.0f);
      layer.experts.back().down_bias = random.constant(c.width, 0.0f);
    }
    if (c.mixture.biases) layer.router_bias = random.constant(c.mixture.experts, 0.0f);
    if (c.mixture.shared_width > 0) {
      layer.shared.gate_up = random.matrix(2 * std::int64_t{c.mixture.shared_width}, c.width);
      layer.shared.down = random.matrix(c.width, c.mixture.shared_width);
      layer.shared_gate = random.matrix(1, c.width);
    }
    return layer;
  }
  layer.gate_up = random.matrix(2 * ffn, c.width);
  if (c.mlp_bias) layer.gate_up_bias = random.constant(2 * ffn, 0.0f);
  layer.down = random.matrix(c.width, ffn);
  if (c.mlp_bias) layer.down_bias = random.constant(c.width, 0.0f);
  return layer;
}

std::string utf8(unsigned code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xc0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3f))};
}

/// Returns GPT-2's printable character for each byte.
std::vector<std::string> byte_symbols() {
  std::vector<std::string> symbols;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    symbols.push_back(utf8(printable ? byte : next++));
  }
  return symbols;
}

}  // namespace

std::string byte_tokenizer_json() {
  nlohmann::json vocabulary = nlohmann::json::object();
  int id = 0;
  for (const std::string& symbol : byte_symbols()) vocabulary[symbol] = id++;
  const auto added = [](int token, const char* text) {
    return nlohmann::json{{"id", token},     {"content", text},     {"single_word", false}, {"lstrip", false},
                          {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::json model = {{"type", "BPE"},
                                {"dropout", nullptr},
                                {"unk_token", nullptr},
                                {"continuing_subword_prefix", nullptr},
                                {"end_of_word_suffix", nullptr},
                                {"fuse_unk", false},
                                {"byte_fallback", false},
                                {"vocab", vocabulary},
                                {"merges", nlohmann::json::array()}};
  return nlohmann::json{{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", {added(256, "<|start|>"), added(257, "<|end|>")}},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", byte_level},
                        {"post_processor", nullptr},
                        {"decoder", byte_level},
                        {"model", model}}
      .dump();
}

std::shared_ptr<const Model> make_random_model(Backend& backend, const Shape& shape, std::uint64_t seed,
                                               const ModelOptions& options) {
  const ModelConfig& config = shape.config;
  RandomWeights random(backend, options, seed);
  const double steps = config.layers + 2.0;
  const auto done = [&](double step) {
    if (options.progress) options.progress(step / steps);
  };
  Weights weights;
  weights.embedding = random.matrix(config.vocabulary, config.width);
  done(1);
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    weights.layers.push_back(make_layer(random, config, layer));
    done(layer + 2);
  }
  weights.final_norm = random.constant(config.width, 1.0f);
  weights.lm_head = config.tied_embeddings ? weights.embedding : random.matrix(config.vocabulary, config.width);
  weights.bytes = random.bytes();
  weights.keep_vectors(backend);
  done(steps);
  ModelOptions own = options;
  if (own.context == 0) own.context = config.context;
  ModelText text{.path = shape.name,
                 .fingerprint = fmt::format("{}, random weights of seed {}", shape.name, seed),
                 .tokenizer = Tokenizer::parse(byte_tokenizer_json(), "tokenizer.json")};
  return std::make_shared<const Model>(Model{std::move(text), config, own, LayerRopes(config), std::move(weights), {}});
}

namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) { return InputFile(path).text(kMaxTextFile); }

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// A special token is written as a text, or as an object whose "content" is the text.
std::string special_token(const JsonFields& fields, const std::string& key) {
  const Json* value = fields.find(key);
  if (value != nullptr && value->is_object()) {
    const auto content = value->find("content");
    if (content == value->end() || !content->is_string()) fields.fail(key, "without a text \"content\"");
    return content->get<std::string>();
  }
  return fields.text_or(key, "");
}

/// "chat_template" is the template, or a list of named ones of which "default" counts.
std::string configured_template(const JsonFields& fields) {
  const Json* value = fields.find("chat_template");
  if (value == nullptr || !value->is_array()) return fields.text_or("chat_template", "");
  for (const Json& entry : *value) {
    if (!entry.is_object() || !entry.contains("name") || !entry.contains("template") || !entry["template"].is_string())
      fields.fail("chat_template", "expected entries with a \"name\" and a \"template\"");
    if (entry["name"] == "default") return entry["template"].get<std::string>();
  }
  return "";
}

class Folder final : public ModelFiles {
 public:
  explicit Folder(const fs::path& path) : path_(path), config_(read_file(path / "config.json")) {}

  ModelConfig config() const override {
    ModelConfig config = parse_config(config_, (path_ / "config.json").string());
    const JsonDocument json = generation_json();
    if (json->is_null()) return config;
    const std::string origin = generation_path().string();
    std::vector<std::int32_t> ends = config.eos_tokens;
    const auto more = JsonFields(*json, origin).integers("eos_token_id", 0, config.vocabulary - 1);
    ends.insert(ends.end(), more.begin(), more.end());
    config.eos_tokens = end_tokens(ends, origin);
    return config;
  }

  GenerationDefaults generation() const override {
    const JsonDocument json = generation_json();
    GenerationDefaults defaults;
    if (json->is_null()) return defaults;
    const std::string origin = generation_path().string();
    const JsonFields fields(*json, origin);
    defaults.do_sample = fields.flag_or("do_sample", false);
    defaults.temperature = static_cast<float>(fields.number_or("temperature", 1.0, 0.0, 1e6));
    defaults.top_k = fields.integer_or("top_k", 0, 0, INT32_MAX);
    defaults.top_p = static_cast<float>(fields.number_or("top_p", 1.0, 0.0, 1.0));
    defaults.min_p = static_cast<float>(fields.number_or("min_p", 0.0, 0.0, 1.0));
    defaults.repetition_penalty = static_cast<float>(fields.number_or("repetition_penalty", 1.0, 0.0, 1e6));
    const std::string problem =
        SamplingParams{
            defaults.temperature, defaults.top_k, defaults.top_p, defaults.min_p, defaults.repetition_penalty, 0}
            .problem();
    if (!problem.empty()) throw ModelError(fmt::format("{}: {}", origin, problem));
    return defaults;
  }

  ModelText text() const override {
    ModelText text;
    text.tokenizer = Tokenizer::parse(read_file(tokenizer_file()), tokenizer_file());
    const fs::path path = path_ / "tokenizer_config.json";
    std::string origin = path.string(), source;
    if (is_there(path)) {
      const JsonDocument root = parse_json(read_file(path), origin);
      const JsonFields fields(*root, origin);
      text.chat_options.merges_roles = true;
      text.chat_options.bos_token = special_token(fields, "bos_token");
      text.chat_options.eos_token = special_token(fields, "eos_token");
      source = configured_template(fields);
    }
    // Transformers lets the file win over the key.
    const fs::path file = path_ / "chat_template.jinja";
    if (is_there(file)) {
      source = read_file(file);
      origin = file.string();
    }
    if (!source.empty()) text.chat_template = ChatTemplate::parse(source, origin);
    return text;
  }

  std::string tokenizer_file() const override { return (path_ / "tokenizer.json").string(); }
  const WeightSource& weights() override {
    if (!renamed_) {
      parsed_ = parse_config(config_, (path_ / "config.json").string());
      weights_.emplace(files(), parsed_.quantization, parsed_.mixture.biases);
      renamed_.emplace(*weights_, parsed_);
    }
    return *renamed_;
  }
  std::string fingerprint(const std::stop_token& stop) override { return files().fingerprint(config_, stop); }
  std::size_t bytes() override { return files().total_bytes(); }

 private:
  fs::path generation_path() const { return path_ / "generation_config.json"; }

  /// null: there is no such file.
  JsonDocument generation_json() const {
    if (!is_there(generation_path())) return {};
    JsonDocument json = parse_json(read_file(generation_path()), generation_path().string());
    if (json->is_null()) throw ModelError(fmt::format("{}: expected an object", generation_path().string()));
    return json;
  }

  const SafetensorsFolder& files() {
    if (!files_) files_.emplace(path_);
    return *files_;
  }

  fs::path path_;
  std::string config_;
  std::optional<SafetensorsFolder> files_;
  ModelConfig parsed_;
  std::optional<CheckpointWeights> weights_;
  std::optional<RenamedWeights> renamed_;
};

bool is_gguf(const fs::path& path) {
  std::error_code ignored;
  return path.extension() == ".gguf" && fs::is_regular_file(path, ignored);
}

}  // namespace

std::unique_ptr<ModelFiles> open_model_files(const fs::path& path) {
  if (is_gguf(path)) return open_gguf_model(path);
  if (std::error_code ignored; !fs::is_directory(path, ignored))
    throw ModelError(fmt::format("{}: neither a folder nor a .gguf file", path.string()));
  return std::make_unique<Folder>(path);
}

fs::path file_beside(const fs::path& model, const std::string& name) {
  if (model.extension() != ".gguf") return model / name;
  const auto part = gguf_part_name(model.filename().string());
  return model.parent_path() / fmt::format("{}.{}", part ? part->stem : model.stem().string(), name);
}

bool is_model(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path / "config.json", ignored)) return true;
  const auto part = gguf_part_name(path.filename().string());
  return is_gguf(path) && (!part || part->number == 1);
}

}  // namespace baton
