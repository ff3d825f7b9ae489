// SPDX-License-Identifier: Apache-2.0
#include "sdk/hub/model_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "engine/model/gguf.h"

namespace baton {
namespace {

constexpr std::size_t kMaxListed = 60;  // models in an error's list
constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kWholeFolder = "safetensors";

/// The files that Baton reads in addition to the weights; so are those whose names begin with "tokenizer".
constexpr std::array<std::string_view, 6> kFolderFiles = {"config.json",         "generation_config.json",
                                                          "chat_template.jinja", "model.safetensors.index.json",
                                                          "baton.profile.json",  "baton.corrections.safetensors"};

/// A GGUF file, or the parts of one.
struct GgufGroup {
  std::string name;                // path of the file, or of its first part
  std::string stem;                // file name without folder, part and .gguf
  std::vector<std::size_t> files;  // by part
  std::int64_t bytes = 0;          // -1: unknown
  std::string missing;             // name of a part that is not there
};

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

void add_bytes(std::int64_t& sum, std::int64_t bytes) { sum = sum < 0 || bytes < 0 ? -1 : sum + bytes; }

std::vector<GgufGroup> gguf_models(const std::vector<HubFile>& files) {
  std::map<std::string, std::size_t, std::less<>> by_name;
  for (std::size_t index = 0; index < files.size(); ++index) by_name.emplace(files[index].name, index);
  std::vector<GgufGroup> models;
  for (const auto& [name, index] : by_name) {
    if (!name.ends_with(".gguf")) continue;
    const std::string_view file = base_name(name);
    const auto part = gguf_part_name(file);
    if (part && part->number != 1) continue;
    GgufGroup model{name, part ? part->stem : std::string(file.substr(0, file.size() - 5)), {}, 0, ""};
    const std::string folder = name.substr(0, name.size() - file.size());
    for (std::uint32_t number = 1; number <= (part ? part->count : 1); ++number) {
      const auto found = by_name.find(part ? folder + part->of(number) : name);
      if (found == by_name.end()) {
        model.missing = part->of(number);
        break;
      }
      model.files.push_back(found->second);
      add_bytes(model.bytes, files[found->second].bytes);
    }
    models.push_back(std::move(model));
  }
  return models;
}

/// Projectors of images and importance matrices are GGUF files, but no models; they count when they are named.
bool is_companion(const GgufGroup& model) {
  const std::string stem = lower(model.stem);
  return stem.starts_with("mmproj") || stem.find("imatrix") != std::string::npos;
}

/// Whether `word` stands in the name between its ends and the separators "-", "." and (before it) "_".
bool has_word(std::string_view name, std::string_view word) {
  for (std::size_t at = name.find(word); at != name.npos; at = name.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool begins = at == 0 || std::string_view("-._").find(name[at - 1]) != std::string_view::npos;
    const bool ends = end == name.size() || name[end] == '-' || name[end] == '.';
    if (begins && ends) return true;
  }
  return false;
}

bool is_named(const GgufGroup& model, const std::vector<HubFile>& files, const std::string& choice) {
  for (const std::size_t index : model.files) {
    const std::string& name = files[index].name;
    for (const std::string_view form : {std::string_view(name), base_name(name)})
      if (form == choice || form == choice + ".gguf") return true;
  }
  return model.stem == choice || model.stem + ".gguf" == choice;
}

/// The files at the top of a repository that make a model folder; nothing without config.json or without weights.
std::optional<ModelChoice> folder_choice(const std::vector<HubFile>& files, std::string* missing) {
  std::map<std::string, std::size_t, std::less<>> top;
  for (std::size_t index = 0; index < files.size(); ++index)
    if (files[index].name.find('/') == std::string::npos) top.emplace(files[index].name, index);
  if (!top.contains("config.json")) return std::nullopt;
  ModelChoice chosen;
  for (const auto& [name, index] : top) {
    const bool listed = std::find(kFolderFiles.begin(), kFolderFiles.end(), name) != kFolderFiles.end();
    if (listed || (name.starts_with("tokenizer") && name.find(".gguf") == name.npos)) chosen.files.push_back(index);
  }
  if (const auto single = top.find("model.safetensors"); single != top.end()) {
    chosen.files.push_back(single->second);
    return chosen;
  }
  if (!top.contains("model.safetensors.index.json")) return std::nullopt;
  // "model-00001-of-00004.safetensors" is numbered as the parts of a GGUF file are.
  std::map<std::string, std::uint32_t> counts;
  for (const auto& [name, index] : top) {
    if (!name.ends_with(kSafetensors)) continue;
    const auto part = gguf_part_name(name.substr(0, name.size() - kSafetensors.size()) + ".gguf");
    if (!part) continue;
    chosen.files.push_back(index);
    counts.emplace(part->stem, part->count);
  }
  for (const auto& [stem, count] : counts) {
    for (std::uint32_t number = 1; number <= count; ++number) {
      const std::string name = fmt::format("{}-{:05}-of-{:05}{}", stem, number, count, kSafetensors);
      if (top.contains(name)) continue;
      *missing = name;
      return std::nullopt;
    }
  }
  return counts.empty() ? std::nullopt : std::optional(std::move(chosen));
}

std::string listed(const std::vector<HubFile>& files, const std::vector<GgufGroup>& models,
                   const std::vector<const GgufGroup*>& some) {
  std::string text;
  std::size_t lines = 0;
  for (const GgufGroup& model : models) {
    if (!some.empty() && std::find(some.begin(), some.end(), &model) == some.end()) continue;
    if (lines++ == kMaxListed) continue;
    text += fmt::format("\n  {}  {}{}", model.name, size_text(model.bytes),
                        model.files.size() > 1 ? fmt::format(" in {} parts", model.files.size()) : "");
    if (!model.missing.empty()) text += fmt::format(", without {}", model.missing);
  }
  if (lines > kMaxListed) text += fmt::format("\n  and {} more", lines - kMaxListed);
  std::string ignored;
  if (const auto folder = folder_choice(files, &ignored); folder && some.empty()) {
    std::int64_t bytes = 0;
    for (const std::size_t index : folder->files) add_bytes(bytes, files[index].bytes);
    text += fmt::format("\n  safetensors  {} in {} files", size_text(bytes), folder->files.size());
  }
  return text;
}

ModelChoice chosen_gguf(const GgufGroup& model, const std::string& origin) {
  if (!model.missing.empty())
    throw ChoiceError(fmt::format("{}: {} is in parts, and {} is not there", origin, model.name, model.missing));
  return {model.files, model.name};
}

}  // namespace

std::string size_text(std::int64_t bytes) {
  if (bytes < 0) return "size unknown";
  static constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

ModelChoice choose_model(const std::vector<HubFile>& files, const std::string& choice, const std::string& origin) {
  const std::vector<GgufGroup> models = gguf_models(files);
  std::string missing;
  if (choice.empty() || choice == kWholeFolder) {
    if (auto folder = folder_choice(files, &missing)) return *std::move(folder);
    if (!missing.empty())
      throw ChoiceError(fmt::format("{}: the weights are in parts, and {} is not there", origin, missing));
  }
  std::vector<const GgufGroup*> meant;
  if (!choice.empty()) {
    for (const GgufGroup& model : models)
      if (is_named(model, files, choice)) meant.push_back(&model);
    if (meant.empty()) {
      const std::string word = lower(choice);
      for (const GgufGroup& model : models)
        if (!is_companion(model) && (has_word(lower(model.stem), word) || lower(model.stem) == word))
          meant.push_back(&model);
    }
  } else {
    for (const GgufGroup& model : models)
      if (!is_companion(model)) meant.push_back(&model);
  }
  if (meant.size() == 1) return chosen_gguf(*meant.front(), origin);
  const std::string list = listed(files, models, meant);
  if (!meant.empty() && choice.empty())
    throw ChoiceError(fmt::format("{} has {} models; name one by its file or its quantisation, as {}:{}{}", origin,
                                  meant.size(), origin, base_name(meant.front()->name), list));
  if (!meant.empty())
    throw ChoiceError(
        fmt::format("{}: '{}' means {} models; name one by its file:{}", origin, choice, meant.size(), list));
  if (list.empty())
    throw ChoiceError(fmt::format(
        "{} holds no model that Baton reads: neither a GGUF file nor config.json with safetensors weights", origin));
  throw ChoiceError(choice.empty() ? fmt::format("{}: expected one of{}", origin, list)
                                   : fmt::format("{}: nothing matches '{}'; expected one of{}", origin, choice, list));
}

}  // namespace baton
