// SPDX-License-Identifier: Apache-2.0
#include "engine/model/weights.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/json_fields.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLarge = 32u << 20;  // smaller files are read faster than their entry is found
constexpr std::uint64_t kChunk = 1u << 20;

/// Empty if it was stopped.
std::string hash_of(const InputFile& file, const std::stop_token& stop) {
  StreamHash hash;
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(kChunk, file.size())));
  for (std::uint64_t at = 0; at < file.size(); at += bytes.size()) {
    if (stop.stop_requested()) return "";
    bytes.resize(static_cast<std::size_t>(std::min(kChunk, file.size() - at)));
    file.read(at, bytes);
    hash.add(bytes.data(), bytes.size());
  }
  return hash.hex();
}

/// What the cache says of a file.
class KeptHash {
 public:
  explicit KeptHash(const InputFile& file) : bytes_(file.size()), changed_(file.changed()) {
    std::error_code error;
    const fs::path path = fs::canonical(file.path(), error), cache = user_cache();
    if (error || cache.empty() || changed_ == 0) return;
    path_ = path.string();
    StreamHash name;
    name.add(path_.data(), path_.size());
    entry_ = cache / "fingerprints" / (name.hex() + ".json");
  }

  /// The hash that was kept; nothing if there is none of the file as it is now.
  std::optional<std::string> kept() const {
    std::error_code error;
    if (entry_.empty() || !fs::is_regular_file(entry_, error)) return std::nullopt;
    try {
      const JsonDocument json = parse_json(InputFile(entry_).text(kChunk), entry_.string());
      if (json->value("path", "") != path_ || json->value("bytes", std::uint64_t{0}) != bytes_ ||
          json->value("changed", std::int64_t{0}) != changed_)
        return std::nullopt;
      return json->value("hash", "");
    } catch (const std::exception&) {
      return std::nullopt;  // a broken entry is made anew
    }
  }

  /// Keeps it, unless the file changed so lately that another change might get the same time.
  void keep(const std::string& hash) const {
    constexpr auto kSettled = std::chrono::seconds(2);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    if (entry_.empty() || now - std::chrono::nanoseconds(changed_) < kSettled) return;
    try {
      write_whole(entry_, Json{{"path", path_}, {"bytes", bytes_}, {"changed", changed_}, {"hash", hash}}.dump() + "\n",
                  Links::replace);
    } catch (const std::exception&) {  // then it is computed again next time
    }
  }

 private:
  std::uint64_t bytes_;
  std::int64_t changed_;
  std::string path_;
  fs::path entry_;  // empty: nothing is kept
};

}  // namespace

std::string fingerprint_of(std::string_view settings, std::span<const InputFile* const> files,
                           const std::stop_token& stop) {
  StreamHash all;
  const auto add_sized = [&](std::string_view text) {
    const std::uint64_t bytes = text.size();
    all.add(&bytes, sizeof bytes);  // so that no two lists of parts give the same stream
    all.add(text.data(), text.size());
  };
  add_sized(settings);
  for (const InputFile* file : files) {
    if (file->size() < kLarge) {
      add_sized(hash_of(*file, stop));
      continue;
    }
    const KeptHash entry(*file);
    std::optional<std::string> hash = entry.kept();
    if (!hash || hash->size() != 32) {
      hash = hash_of(*file, stop);
      if (hash->empty()) return "";
      entry.keep(*hash);
    }
    add_sized(*hash);
  }
  return all.hex();
}

}  // namespace baton
