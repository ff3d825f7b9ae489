// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/hub_listing.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/json_fields.h"
#include "sdk/hub/hub_cache.h"
#include "sdk/hub/model_source.h"

namespace baton {
namespace {

constexpr JsonLimits kAnswer = {.max_depth = 32};
constexpr std::size_t kMaxFiles = 50'000;
constexpr std::size_t kMaxLicence = 200;

std::int64_t size_of(const JsonFields& fields, const std::string& key) {
  const Json* value = fields.find(key);
  if (value == nullptr) return -1;
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() > static_cast<std::uint64_t>(kMaxFileBytes))
    fields.fail(key, fmt::format("expected a size from 0 to {}", kMaxFileBytes));
  return value->get<std::int64_t>();
}

std::string safe_name(const JsonFields& fields, const std::string& key) {
  std::string name = fields.text_or(key, "");
  if (!is_safe_name(name)) fields.fail(key, "expected the path of a file inside of the repository");
  return name;
}

/// The name, size and checksums of a file: `git` is the key of its git id, `sha` that of its SHA-256 in "lfs".
ListedFile listed_file(const JsonFields& fields, const std::string& origin, const std::string& name_key,
                       const std::string& git_key, const std::string& sha_key) {
  ListedFile listed{{safe_name(fields, name_key), size_of(fields, "size")}, {}};
  std::string key = git_key, hex = fields.text_or(git_key, "");
  if (const Json* lfs = fields.find("lfs"); lfs != nullptr && lfs->is_object()) {
    const JsonFields large(*lfs, origin, "lfs.");
    key = "lfs";
    hex = large.text_or(sha_key, "");
    if (const std::int64_t bytes = size_of(large, "size"); bytes >= 0) listed.file.bytes = bytes;
    if (!hex.empty() && !is_hex(hex, 64)) large.fail(sha_key, "expected 64 hexadecimal digits");
  }
  listed.checksum = checksum_of(hex);
  if (!hex.empty() && listed.checksum.kind == Checksum::Kind::none)
    fields.fail(key, "expected 40 or 64 hexadecimal digits");
  return listed;
}

const Json& list_of(const Json& json, const std::string& what, const std::string& origin) {
  if (!json.is_array()) throw ModelError(fmt::format("{}: {} is {}, expected a list", origin, what, describe(json)));
  if (json.size() > kMaxFiles) throw ModelError(fmt::format("{}: more than {} files", origin, kMaxFiles));
  return json;
}

std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string text;
  if (value.is_array())
    for (const Json& entry : value)
      if (entry.is_string()) text += (text.empty() ? "" : ", ") + entry.get<std::string>();
  return text;
}

/// The licence of the card, else the tag "license:...".
std::string licence_of(const JsonFields& fields) {
  std::string licence;
  if (const Json* card = fields.find("cardData"); card != nullptr && card->is_object()) {
    if (const auto found = card->find("license"); found != card->end()) licence = text_of(*found);
    if (const auto name = card->find("license_name"); licence == "other" && name != card->end())
      licence += fmt::format(" ({})", text_of(*name));
  }
  if (const Json* tags = fields.find("tags"); licence.empty() && tags != nullptr && tags->is_array()) {
    for (const Json& tag : *tags)
      if (const std::string text = text_of(tag); licence.empty() && text.starts_with("license:"))
        licence = text.substr(8);
  }
  return licence.substr(0, kMaxLicence);
}

}  // namespace

bool HubListing::complete() const {
  return std::all_of(files.begin(), files.end(), [](const ListedFile& listed) {
    return listed.file.bytes >= 0 && listed.checksum.kind != Checksum::Kind::none;
  });
}

HubListing parse_model_info(std::string_view json, const std::string& origin) {
  const JsonDocument root = parse_json(json, origin, kAnswer);
  const JsonFields fields(*root, origin);
  HubListing listing;
  listing.commit = fields.text_or("sha", "");
  if (!is_commit(listing.commit)) fields.fail("sha", "expected a commit of 40 hexadecimal digits");
  listing.licence = licence_of(fields);
  if (const Json* gated = fields.find("gated")) listing.gated = !(gated->is_boolean() && !gated->get<bool>());
  const Json* siblings = fields.find("siblings");
  if (siblings == nullptr) fields.fail("siblings", "expected a list of files");
  for (const Json& entry : list_of(*siblings, "\"siblings\"", origin))
    listing.files.push_back(
        listed_file(JsonFields(entry, origin, "siblings."), origin, "rfilename", "blobId", "sha256"));
  return listing;
}

std::vector<ListedFile> parse_tree(std::string_view json, const std::string& origin) {
  const JsonDocument root = parse_json(json, origin, kAnswer);
  std::vector<ListedFile> files;
  for (const Json& entry : list_of(*root, "the answer", origin)) {
    const JsonFields fields(entry, origin);
    if (fields.text_or("type", "") == "file") files.push_back(listed_file(fields, origin, "path", "oid", "oid"));
  }
  return files;
}

}  // namespace baton
