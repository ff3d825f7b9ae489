// SPDX-License-Identifier: Apache-2.0
// The answers of a hub: refused, or every name stays inside of the cache, and every size and checksum is sound.
#include "sdk/pull/hub_access.h"

#include <cstdint>
#include <cstdlib>
#include <limits>

#include "engine/base/errors.h"
#include "sdk/hub/hub_cache.h"
#include "sdk/hub/model_source.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const std::vector<baton::ListedFile>& listed) {
  std::vector<baton::HubFile> files;
  for (const auto& [file, checksum] : listed) {
    require(baton::is_safe_name(file.name) && file.bytes >= -1);
    if (checksum.kind == baton::Checksum::Kind::sha256) require(baton::is_hex(checksum.hex, 64));
    if (checksum.kind == baton::Checksum::Kind::git_sha1) require(baton::is_hex(checksum.hex, 40));
    files.push_back(file);
  }
  for (const char* choice : {"", "q4_0", "a.gguf", "safetensors"}) {
    try {
      const baton::ModelChoice chosen = baton::choose_model(files, choice, "fuzz");
      require(!chosen.files.empty());
      for (const std::size_t index : chosen.files) require(index < files.size());
      require(chosen.gguf.empty() || chosen.gguf == files[chosen.files.front()].name);
    } catch (const baton::ChoiceError&) {
      continue;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const baton::HubListing listing = baton::parse_model_info(text, "fuzz");
    require(baton::is_commit(listing.commit));
    check(listing.files);
  } catch (const baton::ModelError&) {
  }
  try {
    check(baton::parse_tree(text, "fuzz"));
  } catch (const baton::ModelError&) {
    return 0;
  }
  return 0;
}
