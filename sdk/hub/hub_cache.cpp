// SPDX-License-Identifier: Apache-2.0
#include "sdk/hub/hub_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "engine/base/hash.h"
#include "sdk/hub/environment.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kModels = "models--";
constexpr std::size_t kMaxFiles = 20'000;  // of a snapshot

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

}  // namespace baton
