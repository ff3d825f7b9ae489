// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/errors.h"

namespace baton {

Model describe_model(const ModelFiles& files, const std::filesystem::path& path, const ModelOptions& options) {
  if (options.dtype == DType::f16 || options.kv_dtype == DType::f16)
    throw ModelError("weights and KV cache are kept in bf16 or f32, not f16");
  const ModelConfig config = files.config();
  if (options.context < 0 || options.context > config.context)
    throw ModelError(fmt::format("{}: a context of {} tokens was asked for, the model's own is {}", path.string(),
                                 options.context, config.context));
  ModelText text = files.text();
  if (text.tokenizer->size() > config.vocabulary)
    throw ModelError(fmt::format("{}: the tokenizer has ids up to {}, but the model's vocabulary is {}", path.string(),
                                 text.tokenizer->size() - 1, config.vocabulary));
  text.path = path;
  Model model{std::move(text), config, options, LayerRopes(config), {}, files.generation()};
  if (options.context == 0) model.options.context = config.context;
  return model;
}

std::shared_ptr<const Model> open_model(Backend& backend, const std::filesystem::path& path,
                                        const ModelOptions& options) {
  const std::unique_ptr<ModelFiles> files = open_model_files(path);
  // What is small is read first: a mistake shows before gigabytes are.
  auto model = std::make_shared<Model>(describe_model(*files, path, options));
  model->fingerprint = files->fingerprint();
  model->weights = load_weights(backend, model->config, files->weights(), options.dtype, options.progress);
  return model;
}

}  // namespace baton
