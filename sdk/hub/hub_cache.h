// SPDX-License-Identifier: Apache-2.0
// The cache that tools of the Hugging Face hub share, and the folder of files from other URLs.
//
//   ROOT/models--org--name/blobs/CHECKSUM            contents; CHECKSUM.incomplete while they are downloaded
//   ROOT/models--org--name/refs/REVISION             the commit that a branch or tag was at
//   ROOT/models--org--name/snapshots/COMMIT/FILE     links to blobs
//   ROOT/.locks/models--org--name/CHECKSUM.lock      locked (flock) by who downloads the blob
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "sdk/hub/model_choice.h"
#include "sdk/hub/model_source.h"

namespace baton {

class HubCache {
 public:
  /// At $HF_HUB_CACHE, else "hub" in hub_home(). Throws ModelError where that is unknown.
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
/// the folder's URL, so the parts of a split file lie together. Throws ModelError where the cache folder is unknown.
std::filesystem::path url_file(const UrlModel& model);

}  // namespace baton
