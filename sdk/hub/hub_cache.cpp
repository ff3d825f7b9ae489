// SPDX-License-Identifier: Apache-2.0
#include "sdk/hub/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <system_error>

#include "engine/base/errors.h"
#include "engine/base/hash.h"
#include "engine/base/system/file.h"
#include "engine/model/gguf.h"
#include "engine/model/model.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kModels = "models--";
constexpr std::size_t kMaxFiles = 20'000;  // in a snapshot

std::string folder_name(const std::string& repository) {
  std::string name(kModels);
  for (const char c : repository) name += c == '/' ? std::string("--") : std::string(1, c);
  return name;
}

}  // namespace

HubCache::HubCache() {
  const std::string folder = environment("HF_HUB_CACHE");
  const std::string older = environment("HUGGINGFACE_HUB_CACHE");
  root_ = !folder.empty() ? home_expanded(folder) : !older.empty() ? home_expanded(older) : hub_home() / "hub";
  root_ = fs::absolute(root_).lexically_normal();
}

fs::path HubCache::repository(const std::string& name) const { return root_ / folder_name(name); }
fs::path HubCache::blob(const std::string& repository_name, const std::string& checksum) const {
  return repository(repository_name) / "blobs" / checksum;
}
fs::path HubCache::lock(const std::string& repository_name, const std::string& checksum) const {
  return root_ / ".locks" / folder_name(repository_name) / (checksum + ".lock");
}
fs::path HubCache::reference(const std::string& repository_name, const std::string& revision) const {
  return repository(repository_name) / "refs" / revision;
}
fs::path HubCache::snapshot(const std::string& repository_name, const std::string& commit) const {
  return repository(repository_name) / "snapshots" / commit;
}

std::optional<std::string> HubCache::commit(const std::string& repository_name, const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const fs::path path = reference(repository_name, revision);
  if (std::error_code error; !fs::is_regular_file(path, error)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  char bytes[80] = {};
  file.read(bytes, sizeof bytes);
  std::string_view text(bytes, static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  if (!is_commit(text)) return std::nullopt;
  return std::string(text);
}

std::vector<HubFile> HubCache::files(const std::string& repository_name, const std::string& commit) const {
  const fs::path folder = snapshot(repository_name, commit);
  std::vector<HubFile> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (files.size() == kMaxFiles) break;
    std::error_code ignored;  // a link whose blob is gone is no file
    if (!at->is_regular_file(ignored)) continue;
    const std::uintmax_t bytes = at->file_size(ignored);
    if (!ignored) files.push_back({at->path().lexically_relative(folder).string(), static_cast<std::int64_t>(bytes)});
  }
  const auto by_name = [](const HubFile& a, const HubFile& b) { return a.name < b.name; };
  std::sort(files.begin(), files.end(), by_name);
  return files;
}

std::vector<std::string> HubCache::repositories() const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(root_, error), end; !error && at != end; at.increment(error)) {
    const std::string folder = at->path().filename().string();
    if (!folder.starts_with(kModels)) continue;
    std::string name = folder.substr(kModels.size());
    const std::size_t separator = name.find("--");
    if (separator == std::string::npos) continue;
    names.push_back(name.replace(separator, 2, "/"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_commit(std::string_view text) { return is_hex(text, 40) || is_hex(text, 64); }

fs::path url_file(const UrlModel& model) {
  const std::string folder = shown_url(model.url).substr(0, shown_url(model.url).rfind('/') + 1);
  const std::size_t begin = folder.find("://") + 3;
  std::string host = folder.substr(begin, folder.find('/', begin) - begin);
  for (char& c : host)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-')) c = '_';
  StreamHash hash;
  hash.add(folder.data(), folder.size());
  return fs::absolute(cache_home() / "baton/models" /
                      fmt::format("{}--{}", host.empty() ? "file" : host.substr(0, 100), hash.hex()) / model.name)
      .lexically_normal();
}

namespace fs = std::filesystem;

std::string environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? std::string() : value;
}

bool environment_flag(const char* variable) {
  std::string value = environment(variable);
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::transform(value.begin(), value.end(), value.begin(), lower);
  return value == "1" || value == "on" || value == "yes" || value == "true";
}

fs::path home_expanded(const std::string& path) {
  const fs::path home = home_folder();
  if (!home.empty() && path.starts_with("~/")) return home / path.substr(2);
  return path;
}

fs::path cache_home() {
  if (const std::string folder = environment("XDG_CACHE_HOME"); !folder.empty()) return home_expanded(folder);
  const fs::path home = home_folder();
  if (home.empty())
    throw ModelError("neither XDG_CACHE_HOME nor HOME is set, so that the user's cache folder is unknown");
  return home / ".cache";
}

fs::path hub_home() {
  if (const std::string folder = environment("HF_HOME"); !folder.empty()) return home_expanded(folder);
  return cache_home() / "huggingface";
}

bool hub_offline() { return environment_flag("HF_HUB_OFFLINE") || environment_flag("TRANSFORMERS_OFFLINE"); }

std::string hub_endpoint() {
  std::string endpoint = environment("HF_ENDPOINT");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint.empty() ? "https://huggingface.co" : endpoint;
}

namespace fs = std::filesystem;
namespace {

fs::path find_pulled(const HubModel& model) {
  const HubCache cache;
  const std::string command = "run: baton pull " + model.text();
  const auto commit = cache.commit(model.repository, model.revision);
  const fs::path folder = cache.repository(model.repository);
  if (!commit)
    throw ModelError(
        fmt::format("model 'hf:{}' has not been pulled; looked in {}\n{}", model.text(), folder.string(), command));
  const fs::path snapshot = cache.snapshot(model.repository, *commit);
  const std::vector<HubFile> files = cache.files(model.repository, *commit);
  try {
    const ModelChoice chosen = choose_model(files, model.choice, model.repository);
    return chosen.gguf.empty() ? snapshot : snapshot / chosen.gguf;
  } catch (const ChoiceError& error) {
    throw ModelError(fmt::format("model 'hf:{}' is not among what has been pulled into {}\n{}\n{}", model.text(),
                                 snapshot.string(), error.what(), command));
  }
}

fs::path find_pulled(const UrlModel& model) {
  const fs::path file = url_file(model);
  const auto part = gguf_part_name(model.name);
  for (std::uint32_t number = 1; number <= (part ? part->count : 1); ++number) {
    const fs::path path = part ? file.parent_path() / part->of(number) : file;
    if (std::error_code error; !fs::is_regular_file(path, error))
      throw ModelError(fmt::format("model '{}' has not been pulled; looked for {}\nrun: baton pull {}",
                                   shown_url(model.url), path.string(), shown_url(model.url)));
  }
  return part ? file.parent_path() / part->of(1) : file;
}

}  // namespace

fs::path find_pulled(const ModelSource& source) {
  return std::visit([](const auto& model) { return find_pulled(model); }, source);
}

std::vector<PulledModel> pulled_models() {
  const HubCache cache;
  std::vector<PulledModel> models;
  for (const std::string& repository : cache.repositories()) {
    const auto commit = cache.commit(repository, "main");
    if (!commit) continue;
    const fs::path snapshot = cache.snapshot(repository, *commit);
    const std::vector<HubFile> files = cache.files(repository, *commit);
    const auto add = [&](const std::string& choice) {
      try {
        const ModelChoice chosen = choose_model(files, choice, repository);
        const std::string name = fmt::format("hf:{}{}{}", repository, choice.empty() ? "" : ":", choice);
        models.push_back({name, chosen.gguf.empty() ? snapshot : snapshot / chosen.gguf});
      } catch (const ChoiceError&) {
        // No model, or a part of one.
      }
    };
    bool has_gguf = false;
    for (const HubFile& file : files) {
      if (!is_model(snapshot / file.name)) continue;
      has_gguf = true;
      add(file.name);
    }
    if (!has_gguf || is_model(snapshot)) add(has_gguf ? "safetensors" : "");
  }
  return models;
}

}  // namespace baton
