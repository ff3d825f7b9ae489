// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <optional>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/system/memory.h"

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
  return text;
}

Model model_of(const ModelFiles& files, const ModelOptions& options, ModelConfig config, ModelText text) {
  LayerRopes ropes(config);
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

std::shared_ptr<const Model> open_model(Backend& backend, const std::filesystem::path& path,
                                        const ModelOptions& options) {
  std::unique_ptr<ModelFiles> files = open_model_files(path);
  ModelConfig config = checked_config(*files, path, options);
  std::string fingerprint = files->fingerprint();
  const WeightSource& source = files->weights();
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
  read->fingerprint = std::move(fingerprint);
  auto model = std::make_shared<Model>(model_of(*files, options, std::move(config), std::move(*read)));
  model->weights = std::move(weights);
  files.reset();
  return_free_memory();
  return model;
}

}  // namespace baton
