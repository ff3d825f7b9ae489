// SPDX-License-Identifier: Apache-2.0
// Published models that are in a cache already, without the network: the cache that tools of the Hugging Face hub
// share, the folder of files from other URLs, and the settings of both in the environment. In the shared cache:
//
//   ROOT/models--org--name/{blobs/CHECKSUM[.incomplete], refs/REVISION, snapshots/COMMIT/FILE (links to blobs)}
//   ROOT/.locks/models--org--name/CHECKSUM.lock      locked (flock) by who downloads the blob
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "sdk/hub/model_source.h"

namespace baton {

class HubCache {
 public:
  /// At $HF_HUB_CACHE, else "hub" in hub_home(). Throws ModelError if that is unknown.
  HubCache();

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path repository(const std::string& name) const;
  std::filesystem::path blob(const std::string& repository, const std::string& checksum) const;
  std::filesystem::path lock(const std::string& repository, const std::string& checksum) const;
  std::filesystem::path reference(const std::string& repository, const std::string& revision) const;
  std::filesystem::path snapshot(const std::string& repository, const std::string& commit) const;

  /// The commit that a revision was at when it was last pulled; a commit is its own. Nothing: it was not pulled.
  std::optional<std::string> commit(const std::string& repository, const std::string& revision) const;
  /// The files of a snapshot whose contents are there.
  std::vector<HubFile> files(const std::string& repository, const std::string& commit) const;
  /// The names of the repositories that have a folder, in order.
  std::vector<std::string> repositories() const;

 private:
  std::filesystem::path root_;
};

/// Whether a text can be a commit's id: 40 or 64 hexadecimal digits.
bool is_commit(std::string_view text);

/// Where a file from a URL is stored: $XDG_CACHE_HOME/baton/models/HOST--HASH/NAME, or in ~/.cache. The hash is that of
/// the folder's URL, so the parts of a split file lie together. Throws ModelError if the cache folder is unknown.
std::filesystem::path url_file(const UrlModel& model);

/// The variable's value; empty: it is not set.
std::string environment(const char* variable);

/// Whether the variable is 1, on, yes or true, in any case.
bool environment_flag(const char* variable);

/// `path` with a leading "~/" replaced by the user's home folder if HOME says it.
std::filesystem::path home_expanded(const std::string& path);

/// $XDG_CACHE_HOME, else ~/.cache. Throws ModelError if neither XDG_CACHE_HOME nor HOME is set.
std::filesystem::path cache_home();

/// $HF_HOME, else "huggingface" in cache_home().
std::filesystem::path hub_home();

/// Offline mode: HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set.
bool hub_offline();

/// $HF_ENDPOINT without slashes at its end, else https://huggingface.co.
std::string hub_endpoint();

/// The GGUF file or the model folder that a source means, pulled by Baton or by another tool that shares the cache.
/// Throws ModelError, whose message names the folder that was searched and the command that pulls the model.
std::filesystem::path find_pulled(const ModelSource& source);

struct PulledModel {
  std::string name;  // as find_model() takes it: "hf:org/name", "hf:org/name:FILE"
  std::filesystem::path path;
};

/// The models of the hub's cache at revision main: of each repository its folder, or its GGUF files.
std::vector<PulledModel> pulled_models();

}  // namespace baton
