// SPDX-License-Identifier: Apache-2.0
// A model is the same whether it is opened from a folder or from the GGUF file made of it.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "engine/cpu/cpu.h"
#include "engine/model/forward.h"
#include "engine/model/gguf.h"
#include "engine/text/pretokenizer.h"
#include "tests/engine/model/checkpoint.h"
#include "tests/engine/model/gguf_checkpoint.h"
#include "tests/engine/model/host_backend.h"
#include "tests/support/golden.h"
#include "tests/support/golden_files.h"
#include "tests/support/host_locale.h"
#include "tests/support/thread_time.h"
#include "tests/support/tiny_model.h"

namespace gguf_model_test {

using namespace baton;
using namespace baton::test;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

/// The GGUF file of a golden checkpoint, with the byte tokenizer.
GgufWriter writer_of(const std::string& golden, BlockType type = BlockType::f32) {
  GgufWriter writer;
  add_checkpoint(writer, golden_folder() / golden, type);
  add_tokenizer(writer, nlohmann::json::parse(byte_tokenizer_json()), "gpt-2");
  return writer;
}

/// A folder with one GGUF file.
class GgufFolder : public TempFolder {
 public:
  explicit GgufFolder(const GgufWriter& writer) { write("model.gguf", writer.bytes()); }
  std::shared_ptr<const Model> open(Backend& backend, const ModelOptions& options = {}) const {
    return open_model(backend, path() / "model.gguf", options);
  }
  std::string problem() const {
    HostBackend backend;
    return error_of<ModelError>([&] { open(backend); });
  }
};

/// Logits of all positions of a prompt.
std::vector<float> logits_of(Backend& backend, const Model& model, const std::vector<TokenId>& ids) {
  KvCache cache(backend, model.kv_layout(), static_cast<std::int32_t>(ids.size()));
  Forward forward(backend, model);
  StepRows rows;
  const std::int32_t index = rows.add_cache(&cache);
  for (std::size_t at = 0; at < ids.size(); ++at) {
    rows.add_row(index, static_cast<std::int32_t>(at), ids[at]);
    rows.logits_rows.push_back(static_cast<std::int32_t>(at));
  }
  const auto values = forward.run(rows);
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("a checkpoint written as GGUF computes the very same logits", "[golden]") {
  const auto backend = make_cpu_backend(2);
  ModelOptions options;
  options.dtype = DType::f32;
  options.kv_dtype = DType::f32;
  // mistral and qwen2_window have sliding windows, which such files do not hold.
  for (const std::string name :
       {"llama2", "llama_linear", "llama_yarn", "smollm",    "phi3",      "qwen2",   "qwen3",
        "gemma3", "smollm3",      "mixtral",    "granite",   "olmo3",     "exaone4", "exaone4_full",
        "glm4",   "ministral3",   "phi4_short", "phi4_long", "qwen2_moe", "gpt_oss", "gemma4"}) {
    INFO(name);
    TempFolder folder;
    folder.copy_from(golden_folder() / name);
    folder.write("tokenizer.json", byte_tokenizer_json());
    if (name == "gemma3") {  // whose files do not say what queries are divided by
      nlohmann::json config = nlohmann::json::parse(read_file(folder.path() / "config.json"));
      config["query_pre_attn_scalar"] = config["head_dim"];
      folder.write("config.json", config.dump());
    }
    if (name == "smollm3") {  // whose files have every fourth layer without RoPE
      nlohmann::json config = nlohmann::json::parse(read_file(folder.path() / "config.json"));
      config.erase("no_rope_layers");
      folder.write("config.json", config.dump());
    }
    if (name == "gpt_oss") {  // whose files have the limit of gates that the published models have
      nlohmann::json config = nlohmann::json::parse(read_file(folder.path() / "config.json"));
      config.erase("swiglu_limit");
      folder.write("config.json", config.dump());
    }
    const auto expected = open_model(*backend, folder.path(), options);
    const auto model = GgufFolder(writer_of(name)).open(*backend, options);
    CHECK(model->config.architecture == expected->config.architecture);
    CHECK(model->config.context == expected->config.context);
    CHECK(model->config.norm_eps == expected->config.norm_eps);
    CHECK(model->config.rope.theta == expected->config.rope.theta);
    const std::vector<TokenId> ids = load_golden(name).prompts.back().ids;
    CHECK(logits_of(*backend, *model, ids) == logits_of(*backend, *expected, ids));
  }
}

TEST_CASE("layers that predict further tokens, and towers, are left out and named") {
  HostBackend backend;
  GgufWriter writer = writer_of("exaone4_full");
  writer.remove_key("exaone4.block_count");
  writer.number("exaone4.block_count", 4);
  writer.number("exaone4.nextn_predict_layers", 1);
  const auto zeros = [](std::size_t count) { return std::string(count * sizeof(float), '\0'); };
  writer.tensor("blk.3.nextn.eh_proj.weight", {64, 128}, BlockType::f32, zeros(64 * 128));
  writer.tensor("v.patch_embd.weight", {8, 8}, BlockType::f32, zeros(64));
  const auto model = GgufFolder(writer).open(backend);
  CHECK(model->config.layers == 3);
  CHECK(model->config.left_out == std::vector<std::string>{"a vision tower", "1 layer that predicts further tokens"});
  writer.tensor("blk.2.nextn.eh_proj.weight", {64, 128}, BlockType::f32, zeros(64 * 128));
  CHECK_THAT(GgufFolder(writer).problem(), Contains("blk.2.nextn.eh_proj.weight"));
}

TEST_CASE("RoPE of Llama 3 comes from a tensor of divisors", "[golden]") {
  const auto backend = make_cpu_backend(2);
  ModelOptions options;
  options.dtype = DType::f32;
  options.kv_dtype = DType::f32;
  const Golden golden = load_golden("llama3");
  const auto model = GgufFolder(writer_of("llama3")).open(*backend, options);
  CHECK(model->config.rope.divisors.size() == static_cast<std::size_t>(model->config.head_dim / 2));
  const GoldenPrompt& prompt = golden.prompts.back();
  const std::vector<float> logits = logits_of(*backend, *model, prompt.ids);
  const auto width = static_cast<std::size_t>(golden.vocabulary);
  double worst = 0.0;
  for (std::size_t i = 0; i < prompt.positions.size(); ++i)
    for (std::size_t v = 0; v < width; ++v)
      worst = std::max(worst, std::abs(static_cast<double>(prompt.logits[i][v]) -
                                       logits[static_cast<std::size_t>(prompt.positions[i]) * width + v]));
  // The divisors are rounded to f32: half a unit of 2^-24 of an angle of up to 100 positions moves logits about as much
  // as the order of sums does.
  INFO("largest error " << worst << ", tolerance " << golden.tolerance);
  CHECK(worst <= 2 * golden.tolerance);
}

TEST_CASE("weights stored in bf16 are read without a copy, and so are quantised ones with one") {
  HostBackend backend;
  ModelOptions options;
  options.dtype = DType::f32;
  const auto wide = GgufFolder(writer_of("qwen2")).open(backend, options);
  const auto narrow = GgufFolder(writer_of("qwen2", BlockType::bf16)).open(backend, options);
  CHECK(host(*wide->weights.layers[0].qkv).values == host(*narrow->weights.layers[0].qkv).values);  // a bf16 checkpoint
  CHECK(wide->weights.lm_head == wide->weights.embedding);
  CHECK(wide->fingerprint != narrow->fingerprint);

  // 112 is no multiple of 32, and 64 is: gate and up of a layer in Q8_0, two blocks of a scale and ones for each row.
  GgufWriter writer;
  add_checkpoint(writer, golden_folder() / "llama2", BlockType::f32);
  std::string blocks;
  for (int block = 0; block < 112 * 2; ++block) blocks += raw(std::uint16_t{0x3800}) + std::string(32, '\1');
  writer.replace("blk.1.ffn_gate.weight", {112, 64}, BlockType::q8_0, blocks);
  add_tokenizer(writer, nlohmann::json::parse(byte_tokenizer_json()), "gpt-2");
  const auto quantised = GgufFolder(writer).open(backend);
  const std::vector<float>& values = host(*quantised->weights.layers[1].gate_up).values;
  CHECK(std::all_of(values.begin(), values.begin() + 112 * 64, [](float value) { return value == 0.5f; }));
  CHECK_FALSE(std::all_of(values.begin() + 112 * 64, values.end(), [](float value) { return value == 0.5f; }));
}

TEST_CASE("the experts of a mixture keep the blocks of their slices of a tensor") {
  constexpr std::int64_t kExperts = 6, kFfn = 48, kWidth = 64;
  const auto backend = make_cpu_backend(1);
  for (const BlockType type : {BlockType::q4_0, BlockType::iq4_nl, BlockType::mxfp4}) {
    INFO(format_of(type).name);
    GgufWriter writer;
    add_checkpoint(writer, golden_folder() / "mixtral", BlockType::f32);
    add_tokenizer(writer, nlohmann::json::parse(byte_tokenizer_json()), "gpt-2");
    std::minstd_rand random(7);
    std::string blocks[2];  // of gate and up
    for (const int part : {0, 1}) {
      const auto bytes = static_cast<std::size_t>(row_bytes(type, kExperts * kFfn * kWidth));
      for (std::size_t i = 0; i < bytes; ++i) blocks[part] += static_cast<char>(random() >> 8 & 0x3b);  // finite scales
      writer.replace(part == 0 ? "blk.1.ffn_gate_exps.weight" : "blk.1.ffn_up_exps.weight", {kExperts, kFfn, kWidth},
                     type, blocks[part]);
    }
    const auto model = GgufFolder(writer).open(*backend);
    const auto slice_bytes = static_cast<std::size_t>(row_bytes(type, kFfn * kWidth));
    for (std::size_t expert = 0; expert < kExperts; ++expert) {
      const Matrix& gate_up = *model->weights.layers[1].experts[expert].gate_up;
      REQUIRE(gate_up.rows == 2 * kFfn);
      CHECK(gate_up.bytes == 2 * slice_bytes / kFfn * 64);  // two panels of 32 rows for 48
      for (const int part : {0, 1}) {
        std::vector<float> expected(kFfn * kWidth), rows(expected.size());
        dequantize(expected, std::as_bytes(std::span(blocks[part])).subspan(expert * slice_bytes, slice_bytes), type);
        std::vector<std::int32_t> ids;
        for (std::int32_t row = 0; row < kFfn; ++row) ids.push_back(part * kFfn + row);
        backend->embed(view_of(rows.data(), kFfn, kWidth), gate_up, ids);
        CHECK(rows == expected);
      }
    }
  }
}

TEST_CASE("a block of MXFP4 whose values are not finite is refused with its place") {
  GgufWriter writer;
  add_checkpoint(writer, golden_folder() / "llama2", BlockType::f32);
  add_tokenizer(writer, nlohmann::json::parse(byte_tokenizer_json()), "gpt-2");
  std::string blocks;
  for (int block = 0; block < 112 * 2; ++block)
    blocks += std::string(1, static_cast<char>(block == 2 * 9 + 1 ? 253 : 120)) + std::string(16, '\1');
  writer.replace("blk.1.ffn_gate.weight", {112, 64}, BlockType::mxfp4, blocks);
  CHECK_THAT(GgufFolder(writer).problem(), Contains("holds a block of MXFP4 at [9, 32] whose scale is not finite"));
}

namespace {

/// A GGUF file cannot say that a special token takes the blanks behind it (`rstrip` of a tokenizer.json).
bool has_stripped_blank(const nlohmann::json& tokenizer, const std::string& text) {
  for (const nlohmann::json& token : tokenizer["added_tokens"]) {
    if (!token.value("rstrip", false)) continue;
    const auto content = token["content"].get<std::string>();
    for (std::size_t at = text.find(content); at != std::string::npos; at = text.find(content, at + 1)) {
      const std::string behind = text.substr(at + content.size());
      if (behind.starts_with(' ') || behind.starts_with('\n') || behind.starts_with("\u00a0")) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("tokenizers written as GGUF give the reference's ids") {
  const nlohmann::json lines = golden_json("tokenizers/lines.json");
  const std::pair<std::string, std::string> kinds[] = {
      {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen", "qwen2"}, {"sp_normalizer", ""}};
  for (const auto& [name, pre] : kinds) {
    INFO(name);
    GgufWriter writer;
    const nlohmann::json reference = golden_json("tokenizers/" + name + ".json");
    add_tokenizer(writer, reference, pre);
    const std::string file = writer.bytes();
    const GgufContents contents = parse_gguf(as_bytes(file), file.size(), "x.gguf").value();
    const auto tokenizer = gguf_tokenizer(contents.metadata);
    const nlohmann::json golden = golden_json("tokenizers/" + name + ".golden.json");
    REQUIRE(golden["ids"].size() > 100);
    int stripped = 0;
    for (std::size_t i = 0; i < golden["ids"].size(); ++i) {
      const std::string text = golden_line(lines[i]);
      CAPTURE(i, text);
      if (has_stripped_blank(reference, text)) {
        ++stripped;
        continue;
      }
      CHECK(tokenizer->encode(text, SpecialTokens::recognise) == golden_ids(golden["ids"][i]));
    }
    CHECK(stripped < 10);
    for (const nlohmann::json& entry : golden["decoded"]) {
      CHECK(tokenizer->decode(golden_ids(entry[0]), false) == entry[1].get<std::string>());
      CHECK(tokenizer->decode(golden_ids(entry[0]), true) == entry[2].get<std::string>());
    }
    CHECK(tokenizer->identity() == gguf_tokenizer(contents.metadata)->identity());
  }
}

TEST_CASE("the special tokens of Phi-3 take the blanks behind them, which only its name tells") {
  for (const bool named : {false, true}) {
    GgufWriter writer;
    add_tokenizer(writer, golden_json("tokenizers/sp_normalizer.json"), "");
    if (named) writer.text("general.name", "Phi 3 Mini 4k Instruct (phi-3)");
    const std::string file = writer.bytes();
    const GgufContents contents = parse_gguf(as_bytes(file), file.size(), "x.gguf").value();
    const auto tokenizer = gguf_tokenizer(contents.metadata);
    const auto ids = [&](const char* text) { return tokenizer->encode(text, SpecialTokens::recognise); };
    CHECK((ids("<|user|>\n hi") == ids("<|user|>hi")) == named);
    CHECK(ids("<s> hi") != ids("<s>hi"));
  }
}

TEST_CASE("a rule for words that does not fit the vocabulary is warned of, and a key beside the file changes it") {
  const nlohmann::json vocabularies = golden_json("words/vocabularies.json");
  const auto qwen = std::ranges::find_if(vocabularies, [](const auto& one) { return one["name"] == "qwen"; });
  std::vector<std::string> tokens;
  for (const nlohmann::json& one : (*qwen)["tokens"]) {
    std::string& token = tokens.emplace_back();
    for (const char c : one.get<std::string>()) text::append_byte_character(token, static_cast<unsigned char>(c));
  }
  for (int byte = 0; byte < 256; ++byte)
    text::append_byte_character(tokens.emplace_back(), static_cast<unsigned char>(byte));
  for (const std::string pre : {"", "default", "smollm", "qwen2"}) {
    CAPTURE(pre);
    GgufWriter writer;
    add_checkpoint(writer, golden_folder() / "qwen2", BlockType::f32);
    writer.text("tokenizer.ggml.model", "gpt2");
    if (!pre.empty()) writer.text("tokenizer.ggml.pre", pre);
    writer.texts("tokenizer.ggml.tokens", tokens);
    writer.texts("tokenizer.ggml.merges", {});
    const GgufFolder folder(writer);
    const auto text = [&] { return open_model_files(folder.path() / "model.gguf")->text(); };
    const std::vector<std::string> warnings = text().warnings;
    if (pre == "qwen2") {
      CHECK(warnings.empty());
      continue;
    }
    REQUIRE(warnings.size() == 1);
    CHECK_THAT(warnings[0], Contains("\"" + (pre.empty() ? "default" : pre) + "\"") && Contains("and \"qwen2\" ") &&
                                Contains("model.config.json ({\"tokenizer.ggml.pre\": \"NAME\"})") &&
                                Contains("model.tokenizer.json"));
    CHECK((warnings[0].find("as tokenizer.ggml.pre is missing") != std::string::npos) == pre.empty());
    const std::uint64_t identity = text().tokenizer->identity();
    folder.write("model.config.json", R"({"tokenizer.ggml.pre": "qwen2"})");
    CHECK(text().warnings.empty());
    CHECK(text().tokenizer->identity() != identity);
    CHECK(text().tokenizer->encode("1 \n\n(x)\n", SpecialTokens::as_text).size() > 2);
    folder.write("model.config.json", R"({"tokenizer.ggml.pre": "no-such"})");
    CHECK_THAT(error_of<ModelError>(text), Contains("beside the file is \"no-such\", expected one of default"));
  }
}

TEST_CASE("chat template, special tokens and ends of an answer come from the metadata") {
  GgufWriter writer = writer_of("qwen2");
  writer.number("tokenizer.ggml.bos_token_id", 256);
  writer.number("tokenizer.ggml.eos_token_id", 257);
  writer.number("tokenizer.ggml.eot_token_id", 256);
  writer.flag("tokenizer.ggml.add_bos_token", true);
  writer.text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}");
  HostBackend backend;
  const GgufFolder folder(writer);
  const auto model = folder.open(backend);
  CHECK(model->config.eos_tokens == std::vector<std::int32_t>{257, 256});
  CHECK(model->config.bos_token == 256);
  CHECK(model->chat_template->render({{"user", "hi"}}, model->chat_options) == "<|start|>hi<|end|>");
  CHECK(model->tokenizer->encode_with_template("a") == std::vector<TokenId>{256, 'a'});
  CHECK(model->generation.temperature == 1.0f);
}

TEST_CASE("the end of a message ends no answer where answers have their own ends") {
  const auto ends = [](const std::vector<std::string>& tokens) {
    GgufWriter writer;
    writer.texts("tokenizer.ggml.tokens", tokens);
    writer.integers("tokenizer.ggml.token_type", std::vector<std::int32_t>(tokens.size(), 3));
    writer.number("tokenizer.ggml.eos_token_id", 0);
    const std::string file = writer.bytes();
    return gguf_eos_tokens(parse_gguf(as_bytes(file), file.size(), "x.gguf")->metadata);
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(ends({"<|return|>", "<|end|>", "<|call|>", "<|endoftext|>", "<|start|>"}) == Ids{0, 2, 3});
  CHECK(ends({"<|return|>", "<|end|>", "<|start|>"}) == Ids{0, 1});
  CHECK(ends({"<|x|>", "<|end|>", "<|call|>"}) == Ids{0, 1});
}

TEST_CASE("a GGUF file of many tokens that end an answer is refused in time in proportion to its size") {
  GgufWriter writer;
  writer.texts("tokenizer.ggml.tokens", std::vector<std::string>(150'000, "</s>"));
  writer.integers("tokenizer.ggml.token_type", std::vector<std::int32_t>(150'000, 3));
  const std::string file = writer.bytes();
  const auto contents = parse_gguf(as_bytes(file), file.size(), "x.gguf");
  REQUIRE(contents.has_value());
  const double begin = thread_seconds();
  CHECK_THAT(error_of<ModelError>([&] { gguf_eos_tokens(contents->metadata); }),
             Equals("x.gguf: 150000 tokens end an answer, expected at most 64"));
  CHECK(thread_seconds() - begin < 0.3 * slowdown());
}

TEST_CASE("files beside a GGUF file change its configuration and its tokenizer") {
  HostBackend backend;
  const GgufFolder folder(writer_of("qwen2"));
  const std::string plain = folder.open(backend)->fingerprint;
  folder.write("model.config.json", R"({"max_position_embeddings": 77, "eos_token_id": [5]})");
  const auto model = folder.open(backend);
  CHECK(model->config.context == 77);
  CHECK(model->config.eos_tokens == std::vector<std::int32_t>{5});
  CHECK(model->fingerprint != plain);
  folder.write("model.config.json", "[]");
  CHECK_THAT(folder.problem(), Equals((folder.path() / "model.config.json").string() + ": expected an object"));
  folder.write("model.config.json", R"({"hidden_act": "gelu"})");
  CHECK_THAT(folder.problem(), Contains("\"hidden_act\" is \"gelu\", but only silu is supported"));
  folder.write("model.config.json", "{}");
  folder.write("model.tokenizer.json", "{");
  CHECK_THAT(folder.problem(), Contains("model.tokenizer.json: not JSON"));
}

TEST_CASE("a host's locale changes no number of a file") {
  GgufWriter writer = writer_of("qwen2");
  writer.text("qwen2.rope.scaling.type", "yarn");
  writer.real("qwen2.rope.scaling.factor", 2.5f);
  writer.number("qwen2.rope.scaling.original_context_length", 64);
  const GgufFolder folder(writer);
  const HostLocale locale;
  HostBackend backend;
  const auto model = folder.open(backend);
  CHECK(model->config.rope.factor == 2.5f);
  CHECK(model->config.norm_eps == 1e-6f);
}

TEST_CASE("a file of Phi-4 says that it has no sliding window by a length of 0") {
  TempFolder folder;
  folder.copy_from(golden_folder() / "phi3");
  nlohmann::json config = nlohmann::json::parse(read_file(folder.path() / "config.json"));
  config["sliding_window"] = nullptr;
  folder.write("config.json", config.dump());
  GgufWriter writer;
  add_checkpoint(writer, folder.path(), BlockType::f32);
  add_tokenizer(writer, nlohmann::json::parse(byte_tokenizer_json()), "gpt-2");
  writer.number("phi3.attention.sliding_window", 0);
  HostBackend backend;
  CHECK(GgufFolder(writer).open(backend)->config.window == std::vector<std::int32_t>(3, 0));
}

TEST_CASE("what a file of Gemma 4 says of its layers fits together, or is refused by name") {
  HostBackend backend;
  const GgufWriter whole = writer_of("gemma4");
  const auto with = [&](const auto& change) {
    GgufWriter writer = whole;
    change(writer);
    return GgufFolder(writer).problem();
  };
  const auto set = [](const std::string& key, std::uint32_t value) {
    return [=](GgufWriter& w) {
      w.remove_key("gemma4." + key);
      w.number("gemma4." + key, value);
    };
  };
  const auto list = [](const std::string& key, const std::vector<std::int32_t>& values) {
    return [=](GgufWriter& w) {
      w.remove_key("gemma4." + key);
      w.integers("gemma4." + key, values);
    };
  };
  const ModelConfig config = GgufFolder(whole).open(backend)->config;
  CHECK(config.shapes.kv_layer == std::vector<std::int32_t>{0, 1, 2, 2, 1});
  CHECK(config.shapes.head_dim == std::vector<std::int32_t>{16, 32, 16, 16, 32});
  CHECK(config.shapes.kv_heads == std::vector<std::int32_t>{2, 1, 2, 2, 1});
  CHECK(config.shapes.ffn_width == std::vector<std::int32_t>{40, 40, 40, 80, 80});
  CHECK((config.rope.width == 32 && config.rope.turning == 4));
  CHECK(config.keys_as_values(1));
  CHECK(config.mixture.beside_mlp);

  CHECK_THAT(with(set("attention.shared_kv_layers", 5)), Contains("\"gemma4.attention.shared_kv_layers\" is 5"));
  CHECK_THAT(with([&](GgufWriter& w) {
               set("attention.shared_kv_layers", 4)(w);
               list("feed_forward_length", {40, 80, 80, 80, 80})(w);
             }),
             Contains("finds no layer of its kind"));
  CHECK_THAT(with(set("attention.key_length_swa", 24)), Contains("\"gemma4.attention.value_length_swa\" is 16"));
  CHECK_THAT(with(set("embedding_length_per_layer_input", 8)), Contains("per_layer_token_embd.weight"));
  CHECK_THAT(with(list("attention.head_count_kv", {2, 1})), Contains("expected 5, one of each layer"));
  CHECK_THAT(with(list("attention.head_count_kv", {2, 1, 1, 1, 1})), Contains("the same number"));
  CHECK_THAT(with(list("attention.head_count_kv", {2, 0, 2, 2, 0})), Contains("the same number"));
  CHECK_THAT(with(list("feed_forward_length", {40, 40, 80, 80, 80})), Contains("twice as much in those that share KV"));
  CHECK_THAT(with([](GgufWriter& w) { w.remove_key("gemma4.attention.sliding_window_pattern"); }),
             Contains("\"gemma4.attention.sliding_window_pattern\" is missing"));
  CHECK_THAT(with([](GgufWriter& w) { w.remove("blk.0.layer_output_scale.weight"); }),
             Contains("blk.0.layer_output_scale.weight"));
  CHECK_THAT(with([](GgufWriter& w) { w.remove("blk.4.inp_gate.weight"); }), Contains("blk.4.inp_gate.weight"));
  CHECK_THAT(with([](GgufWriter& w) { w.replace("rope_freqs.weight", {16}, BlockType::f32, std::string(64, '\0')); }),
             Contains("holds 0 at 0, expected ones"));
  CHECK_THAT(with([](GgufWriter& w) {
               w.tensor("blk.3.attn_v.weight", {32, 64}, BlockType::f32, std::string(32 * 64 * 4, '\0'));
             }),
             Equals(""));  // published files have those of layers that read others
}

TEST_CASE("a tokenizer of files of Gemma 4 has pieces and their merges") {
  HostBackend backend;
  GgufWriter writer;
  add_checkpoint(writer, golden_folder() / "gemma4", BlockType::f32);
  const std::string mark = "\u2581";
  writer.text("tokenizer.ggml.model", "gemma4");
  std::vector<std::string> tokens = {"<eos>",           "a", "b", mark, "ab", mark + "ab", "<unk>", "<turn|>",
                                     "<|tool_response>"};
  std::vector<std::int32_t> types = {3, 1, 1, 1, 1, 1, 3, 3, 4};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  writer.texts("tokenizer.ggml.tokens", tokens);
  writer.integers("tokenizer.ggml.token_type", types);
  writer.texts("tokenizer.ggml.merges", {"a b", mark + " ab"});
  writer.number("tokenizer.ggml.unknown_token_id", 6);
  writer.number("tokenizer.ggml.eos_token_id", 0);
  writer.flag("tokenizer.ggml.add_space_prefix", false);
  const auto model = GgufFolder(writer).open(backend);
  CHECK(model->config.eos_tokens == std::vector<std::int32_t>{0, 7, 8});
  const auto ids = [&](std::string_view text) { return model->tokenizer->encode(text, SpecialTokens::as_text); };
  CHECK(ids("ab ab\n") == std::vector<TokenId>{4, 5, 9 + 0x0a});
  CHECK(model->tokenizer->decode(ids("b ab\na"), false) == "b ab\na");
}

TEST_CASE("what a GGUF file has that is not supported is refused by name") {
  const auto with = [](const auto& change) {
    GgufWriter writer = writer_of("llama2");
    change(writer);
    return GgufFolder(writer).problem();
  };
  GgufWriter dense = writer_of("qwen2");
  dense.number("qwen2.expert_count", 8);
  CHECK_THAT(GgufFolder(dense).problem(),
             Contains("key \"qwen2.expert_count\" is 8, but mixtures of experts are not supported"));
  GgufWriter mixture = writer_of("mixtral");
  mixture.replace("blk.0.ffn_up_exps.weight", {5, 48, 64}, BlockType::f32, std::string(5 * 48 * 64 * 4, '\0'));
  CHECK_THAT(GgufFolder(mixture).problem(), Contains("has shape [5, 48, 64], expected [6, 48, 64]"));
  GgufWriter sigmoid = writer_of("mixtral");
  sigmoid.number("llama.expert_gating_func", 2);
  CHECK_THAT(GgufFolder(sigmoid).problem(), Contains("\"llama.expert_gating_func\" is 2, expected 1 (softmax)"));
  CHECK_THAT(with([](GgufWriter& w) { w.number("llama.expert_count", 8); }),
             Contains("\"llama.expert_used_count\" is missing"));
  CHECK_THAT(with([](GgufWriter& w) { w.real("llama.logit_scale", 2.0f); }), Contains("\"llama.logit_scale\" is 2"));
  CHECK_THAT(with([](GgufWriter& w) { w.tensor("blk.0.attn_sinks.weight", {1}, BlockType::f32, raw(1.0f)); }),
             Contains("tensor \"blk.0.attn_sinks.weight\" is not one of a model of the architecture llama"));
  CHECK_THAT(
      with([](GgufWriter& w) { w.replace("blk.0.attn_q.weight", {64}, BlockType::f32, std::string(256, '\0')); }),
      Contains("tensor \"blk.0.attn_q.weight\" has shape [64], expected [64, 64]"));
  CHECK_THAT(with([](GgufWriter& w) { w.remove("blk.2.ffn_up.weight"); }),
             Contains("tensor \"blk.2.ffn_up.weight\" (model.layers.2.mlp.up_proj.weight) is missing"));
  CHECK_THAT(with([](GgufWriter& w) { w.remove("token_embd.weight"); }), Contains("\"token_embd.weight\" is missing"));

  GgufWriter other;
  other.text("general.architecture", "mamba");
  CHECK_THAT(GgufFolder(other).problem(),
             Contains("key \"general.architecture\" is \"mamba\", expected one of llama, qwen2, qwen3, phi3"));

  const auto tokenizer = [](const auto& change) {
    GgufWriter writer;
    add_checkpoint(writer, golden_folder() / "llama2", BlockType::f32);
    change(writer);
    return GgufFolder(writer).problem();
  };
  const std::vector<std::string> tokens = {"a", "b"};
  CHECK_THAT(tokenizer([](GgufWriter&) {}), Contains("key \"tokenizer.ggml.model\" is missing, expected a text"));
  CHECK_THAT(tokenizer([](GgufWriter& w) { w.text("tokenizer.ggml.model", "bert"); }),
             Contains("\"tokenizer.ggml.model\" is \"bert\", expected gpt2 (byte-level BPE), llama"));
  const auto bpe = [&](GgufWriter& w, const std::string& pre, const std::vector<std::string>& merges) {
    w.text("tokenizer.ggml.model", "gpt2");
    w.text("tokenizer.ggml.pre", pre);
    w.texts("tokenizer.ggml.tokens", tokens);
    w.texts("tokenizer.ggml.merges", merges);
  };
  CHECK_THAT(tokenizer([&](GgufWriter& w) { bpe(w, "no-such", {}); }),
             Contains("\"tokenizer.ggml.pre\" is \"no-such\", expected one of default, gpt-2"));
  CHECK_THAT(tokenizer([&](GgufWriter& w) { bpe(w, "gpt-2", {"a z"}); }), Contains("the token 'az' is not in"));
  CHECK_THAT(tokenizer([&](GgufWriter& w) {
               bpe(w, "gpt-2", {});
               w.integers("tokenizer.ggml.token_type", {1});
             }),
             Contains("expected 2 entries, one for each token"));
  CHECK_THAT(tokenizer([&](GgufWriter& w) {
               bpe(w, "gpt-2", {});
               w.number("tokenizer.ggml.bos_token_id", 2);
             }),
             Contains("key \"tokenizer.ggml.bos_token_id\" is 2, expected an integer from 0 to 1"));
  CHECK_THAT(tokenizer([](GgufWriter& w) {
               w.text("tokenizer.ggml.model", "gpt2");
               w.texts("tokenizer.ggml.tokens", {"a", "a"});
               w.texts("tokenizer.ggml.merges", {});
             }),
             Contains("model.vocab: the token 'a' has two ids, 0 and 1"));
}

}  // namespace gguf_model_test
