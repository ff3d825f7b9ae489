// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/engine/model/checkpoint.h"
#include "tests/engine/model/host_backend.h"
#include "tests/support/golden.h"
#include "tests/support/thread_time.h"
#include "tests/support/tiny_model.h"

namespace model_test {

using namespace baton;
using namespace baton::test;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

/// A copy of a golden checkpoint with a tokenizer, to be changed.
class Folder : public TempFolder {
 public:
  explicit Folder(const std::string& golden = "qwen2") {
    copy_from(golden_folder() / golden);
    write("tokenizer.json", byte_tokenizer_json());
  }
  std::shared_ptr<const Model> open(const ModelOptions& options = {}) { return open_model(backend_, path(), options); }
  std::string problem(const ModelOptions& options = {}) {
    return error_of<ModelError>([&] { open(options); });
  }
  std::string file(const std::string& name) const { return (path() / name).string(); }

 private:
  HostBackend backend_;
};

}  // namespace

TEST_CASE("a folder is opened") {
  Folder folder;
  double share = 0.0;
  ModelOptions options;
  options.dtype = DType::f32;
  options.progress = [&](double done) { share = done; };
  const auto model = folder.open(options);
  CHECK(model->path == folder.path());
  CHECK(model->config.architecture == "Qwen2ForCausalLM");
  CHECK(model->options.context == 512);
  CHECK(model->fingerprint.size() == 32);
  CHECK(model->fingerprint == folder.open()->fingerprint);
  CHECK(model->weights.layers.size() == 3);
  CHECK(model->weights.embedding->dtype == DType::f32);
  CHECK(model->ropes.distinct()[0].inverse_frequencies().size() == 8);
  CHECK(model->tokenizer->size() == 258);
  CHECK(model->chat_template == nullptr);
  CHECK(model->kv_shape(0).kv_heads == 2);
  CHECK(share == 1.0);
  // eos of both files, each once
  CHECK(model->config.eos_tokens == std::vector<std::int32_t>{2, 319});
}

TEST_CASE("a model that also sees is opened as its text model, wherever its weights lie") {
  const auto rename = [](const std::string& bytes, const std::function<std::string(const std::string&)>& to) {
    std::uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    nlohmann::json header = nlohmann::json::parse(bytes.substr(8, size)), renamed;
    for (const auto& [name, entry] : header.items()) renamed[name == "__metadata__" ? name : to(name)] = entry;
    return safetensors(renamed.dump(), bytes.substr(8 + size));
  };
  const auto plain = Folder("gemma3").open();
  for (const bool inner : {false, true}) {
    Folder folder("gemma3");
    nlohmann::json text = nlohmann::json::parse(read_file(folder.path() / "config.json"));
    text["model_type"] = "gemma3_text";
    text.erase("architectures");
    folder.write("config.json", nlohmann::json{{"architectures", {"Gemma3ForConditionalGeneration"}},
                                               {"vision_config", {{"hidden_size", 8}}},
                                               {"text_config", text}}
                                    .dump());
    folder.write("model.safetensors",
                 rename(read_file(folder.path() / "model.safetensors"), [&](const std::string& name) {
                   if (!inner) return "language_model." + name;
                   return name == "lm_head.weight" ? name : "model.language_model." + name.substr(6);
                 }));
    const auto model = folder.open();
    CHECK(model->config.left_out == std::vector<std::string>{"a vision tower"});
    CHECK(host(*model->weights.layers[1].qkv).values == host(*plain->weights.layers[1].qkv).values);
    CHECK(model->weights.final_norm == plain->weights.final_norm);
    CHECK(host(*model->weights.lm_head).values == host(*plain->weights.lm_head).values);
  }
}

TEST_CASE("LongRoPE takes the divisors of the context that is asked for") {
  ModelOptions options;
  Folder folder("phi4_short");
  nlohmann::json config = nlohmann::json::parse(read_file(folder.path() / "config.json"));
  config["original_max_position_embeddings"] = 256;
  folder.write("config.json", config.dump());
  const auto frequency = [&](std::int32_t context) {
    options.context = context;
    return folder.open(options)->ropes.distinct()[0].inverse_frequencies().back();
  };
  CHECK(frequency(0) < frequency(256));  // the model's own context is 512
  CHECK(frequency(257) == frequency(0));
  CHECK(frequency(256) == frequency(16));
}

TEST_CASE("generation_config.json gives the sampling defaults") {
  Folder folder;
  const GenerationDefaults defaults = folder.open()->generation;
  CHECK(defaults.do_sample);
  CHECK(defaults.temperature == 0.7f);
  CHECK(defaults.top_k == 20);
  CHECK(defaults.top_p == 0.8f);
  CHECK(defaults.repetition_penalty == 1.05f);
  std::filesystem::remove(folder.path() / "generation_config.json");
  CHECK_FALSE(folder.open()->generation.do_sample);
  CHECK(folder.open()->generation.temperature == 1.0f);
  folder.write("generation_config.json", R"({"top_p": 1.5})");
  CHECK_THAT(folder.problem(),
             Equals(folder.file("generation_config.json") + ": \"top_p\" is 1.5, expected a number from 0 to 1"));
  folder.write("generation_config.json", R"({"top_p": 0})");
  CHECK_THAT(folder.problem(), Contains("generation_config.json: top_p is 0, expected more than 0"));
  folder.write("generation_config.json", R"({"eos_token_id": [2, 320]})");
  CHECK_THAT(folder.problem(), Contains("generation_config.json: \"eos_token_id\" is a list of 2"));
  folder.write("generation_config.json", "");
  CHECK_THAT(folder.problem(), Contains("generation_config.json: not JSON"));
}

TEST_CASE("many tokens that end an answer are refused in time in proportion to the file's size") {
  Folder folder;
  nlohmann::json config = nlohmann::json::parse(std::ifstream(folder.path() / "config.json"));
  config["vocab_size"] = 1 << 20;
  folder.write("config.json", config.dump());
  std::vector<std::int32_t> ends(150'000);
  std::iota(ends.begin(), ends.end(), 1000);
  folder.write("generation_config.json", nlohmann::json{{"eos_token_id", ends}}.dump());
  const auto files = open_model_files(folder.path());
  const double begin = thread_seconds();
  const std::string problem = error_of<ModelError>([&] { files->config(); });
  CHECK(thread_seconds() - begin < 0.3 * slowdown());
  CHECK_THAT(problem,
             Equals(folder.file("generation_config.json") + ": 150001 tokens end an answer, expected at most 64"));
}

TEST_CASE("the chat template comes from a key, a named list or a file, which wins") {
  const std::vector<ChatMessage> messages = {{"user", "hi"}};
  Folder folder;
  const auto rendered = [&] {
    const auto model = folder.open();
    return model->chat_template == nullptr ? "none" : model->chat_template->render(messages, model->chat_options);
  };
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}})");
  CHECK(rendered() == "none");
  CHECK(folder.open()->chat_options.bos_token == "<s>");
  CHECK(folder.open()->chat_options.eos_token == "</s>");
  folder.write("tokenizer_config.json", R"({"chat_template": "one {{ messages[0]['content'] }}", "bos_token": null})");
  CHECK(rendered() == "one hi");
  CHECK(folder.open()->chat_options.bos_token.empty());
  folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "two"}]})");
  CHECK(rendered() == "two");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"}]})");
  CHECK(rendered() == "none");
  folder.write("chat_template.jinja", "three");
  CHECK(rendered() == "three");

  folder.write("chat_template.jinja", "{{ oh");
  CHECK_THAT(folder.problem(), Contains("chat_template.jinja"));
  std::filesystem::remove(folder.path() / "chat_template.jinja");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  CHECK_THAT(folder.problem(), Contains("tokenizer_config.json: \"chat_template\" is a list of 1, expected entries"));
  folder.write("tokenizer_config.json", R"({"bos_token": {"text": 1}})");
  CHECK_THAT(folder.problem(), Contains("\"bos_token\" is an object, without a text \"content\""));
}

TEST_CASE("the context that is asked for must fit") {
  Folder folder;
  ModelOptions options;
  options.context = 100;
  CHECK(folder.open(options)->options.context == 100);
  options.context = 513;
  CHECK_THAT(folder.problem(options),
             Equals(folder.path().string() + ": a context of 513 tokens was asked for, the model's own is 512"));
  options.context = -1;
  CHECK_THAT(folder.problem(options), Contains("a context of -1 tokens"));
}

TEST_CASE("types that are not kept are refused") {
  Folder folder;
  ModelOptions options;
  options.kv_dtype = DType::f16;
  CHECK_THAT(folder.problem(options), Contains("in bf16 or f32, not f16"));
}

TEST_CASE("files that are missing or broken are named") {
  HostBackend backend;
  CHECK_THAT(error_of<ModelError>([&] { open_model(backend, "/no/such/model", {}); }),
             Equals("/no/such/model: neither a folder nor a .gguf file"));
  for (const char* name : {"config.json", "tokenizer.json"}) {
    Folder folder;
    std::filesystem::remove(folder.path() / name);
    CHECK_THAT(folder.problem(), Equals(folder.file(name) + ": No such file or directory"));
  }
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    INFO(name);
    Folder folder;
    folder.write(name, "{ broken");
    CHECK_THAT(folder.problem(), Contains(folder.file(name)));
  }
  Folder folder;
  folder.write("model.safetensors", "short");
  CHECK_THAT(folder.problem(),
             Equals(folder.file("model.safetensors") + ": truncated: 5 bytes, a safetensors file has at least 8"));
}

TEST_CASE("a tokenizer with more ids than the vocabulary is refused") {
  Folder folder;
  std::string json = byte_tokenizer_json();
  const std::size_t at = json.rfind("257");
  REQUIRE(at != json.npos);
  folder.write("tokenizer.json", json.replace(at, 3, "320"));
  const std::string problem = folder.problem();
  CHECK_THAT(problem, Contains(folder.file("tokenizer.json") + ": the tokenizer has ids up to"));
}

}  // namespace model_test
