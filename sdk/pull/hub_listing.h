// SPDX-License-Identifier: Apache-2.0
// What a hub says about a repository: its commit, licence and files. The server is not trusted: every name, size and
// checksum is checked here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/hub/model_choice.h"
#include "sdk/pull/checksum.h"

namespace baton {

constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 47;  // the sum over a listing fits as well

struct ListedFile {
  HubFile file;
  Checksum checksum;
};

struct HubListing {
  std::string commit;
  std::string licence;
  bool gated = false;
  std::vector<ListedFile> files;

  /// Whether every file has a size and a checksum.
  bool complete() const;
};

/// The answer to GET /api/models/{repository}/revision/{revision}?blobs=true. `origin` stands in errors. Throws
/// ModelError: no such object, a name that is not safe, a negative size, a checksum of another form.
HubListing parse_model_info(std::string_view json, const std::string& origin);

/// One page of the answer to GET /api/models/{repository}/tree/{revision}?recursive=true. Throws ModelError.
std::vector<ListedFile> parse_tree(std::string_view json, const std::string& origin);

}  // namespace baton
