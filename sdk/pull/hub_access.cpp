// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/hub_access.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "engine/base/hash.h"
#include "engine/base/json_fields.h"
#include "sdk/hub/hub_cache.h"
#include "sdk/hub/model_source.h"
#include "sdk/pull/http.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxJson = 8 << 20;  // bytes of an answer; a repository of ten thousand files has 3 MiB
constexpr int kMaxPages = 50;
constexpr std::size_t kMaxToken = 4096;

fs::path token_file() {
  const std::string path = environment("HF_TOKEN_PATH");
  return path.empty() ? hub_home() / "token" : home_expanded(path);
}

/// The user's token, or empty.
std::string read_token() {
  if (environment_flag("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return "";
  std::string token = environment("HF_TOKEN"), origin = "HF_TOKEN";
  if (token.empty()) token = environment("HUGGING_FACE_HUB_TOKEN");
  if (token.empty()) {
    const fs::path path = token_file();
    if (std::error_code error; !fs::is_regular_file(path, error)) return "";
    std::ifstream file(path, std::ios::binary);
    token.resize(kMaxToken + 1);
    file.read(token.data(), static_cast<std::streamsize>(token.size()));
    token.resize(static_cast<std::size_t>(file.gcount()));
    origin = path.string();
  }
  const auto is_blank = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!token.empty() && is_blank(token.back())) token.pop_back();
  token.erase(token.begin(), std::find_if_not(token.begin(), token.end(), is_blank));
  const auto is_visible = [](char c) { return c > 0x20 && c < 0x7F; };
  if (token.size() > kMaxToken || !std::all_of(token.begin(), token.end(), is_visible))
    throw PullError(PullError::Kind::usage,
                    fmt::format("the token in {} is invalid: expected one word of at most {} letters, digits and signs",
                                origin, kMaxToken));
  return token;
}

/// An ETag without W/ and quotes.
std::string bare_etag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return etag;
}

/// The URL of the next page: <URL>; rel="next".
std::string next_page(const std::string& link) {
  const std::size_t rel = link.find("rel=\"next\"");
  if (rel == std::string::npos) return "";
  const std::size_t open = link.rfind('<', rel), close = link.rfind('>', rel);
  return open == std::string::npos || close == std::string::npos || close < open
             ? std::string()
             : link.substr(open + 1, close - open - 1);
}

}  // namespace

HubAccess::HubAccess(HttpClient& client, HubModel model, const PullRequest& request)
    : client_(client), model_(std::move(model)), request_(request), endpoint_(hub_endpoint()), token_(read_token()) {
  if (!endpoint_.starts_with("https://") && !endpoint_.starts_with("http://"))
    throw PullError(PullError::Kind::usage,
                    fmt::format("HF_ENDPOINT is '{}', expected https://HOST", shown_url(endpoint_)));
}

std::string HubAccess::get(const std::string& url, HttpReply* reply) {
  HttpRequest request;
  request.url = url;
  request.token = token_;
  std::string body;
  Retries(request_.retries, request_.stop, request_.on_note).run([&] {
    body = client_.text(request, kMaxJson, reply);
  });
  return body;
}

HubListing HubAccess::listing() {
  const std::string url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint_, model_.repository,
                                      percent_encoded(model_.revision, false));
  HubListing listing = parse_model_info(get(url), shown_url(url));
  if (!listing.complete()) {  // a mirror that does not know ?blobs=true
    if (auto files = tree(listing.commit); !files.empty()) listing.files = std::move(files);
  }
  return listing;
}

std::vector<ListedFile> HubAccess::tree(const std::string& commit) {
  const std::string first =
      fmt::format("{}/api/models/{}/tree/{}?recursive=true", endpoint_, model_.repository, commit);
  std::vector<ListedFile> files;
  std::string url = first;
  for (int page = 0; page < kMaxPages && !url.empty(); ++page) {
    HttpReply reply;
    try {
      const auto more = parse_tree(get(url, &reply), shown_url(url));
      files.insert(files.end(), more.begin(), more.end());
    } catch (const HttpError& error) {
      if (error.status == 404 && page == 0) return {};
      throw;
    }
    url = next_page(reply.header("link"));
    if (!url.empty() && !url.starts_with(endpoint_ + "/"))  // it gets the token
      throw PullError(PullError::Kind::network, fmt::format("{}: the next page is at '{}', expected the same host",
                                                            shown_url(first), shown_url(url).substr(0, 200)));
  }
  if (!url.empty())
    throw PullError(PullError::Kind::network, fmt::format("{}: more than {} pages", shown_url(first), kMaxPages));
  return files;
}

std::string HubAccess::identify(ListedFile& listed, const std::string& commit) {
  if (listed.checksum.kind != Checksum::Kind::none && listed.file.bytes >= 0) return listed.checksum.hex;
  HttpRequest request;
  request.url = file_url(commit, listed.file.name);
  request.head = true;
  request.stay = true;
  request.token = token_;
  HttpReply reply;
  Retries(request_.retries, request_.stop, request_.on_note).run([&] {
    reply = client_.send(
        request, [](const HttpReply&) {}, [](std::span<const std::byte>) {});
  });
  const auto linked = [&](const char* name, const char* plain) {
    const auto found = reply.linked.find(name);
    return found != reply.linked.end() ? found->second : reply.status < 300 ? reply.header(plain) : std::string();
  };
  if (listed.file.bytes < 0) {
    const std::string text = linked("x-linked-size", "content-length");
    std::int64_t bytes = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
    if (error == std::errc() && end == text.data() + text.size() && bytes >= 0) listed.file.bytes = bytes;
  }
  const std::string etag = bare_etag(linked("x-linked-etag", "etag"));
  if (listed.checksum.kind == Checksum::Kind::none) listed.checksum = checksum_of(etag);
  if (listed.checksum.kind != Checksum::Kind::none) return listed.checksum.hex;
  if (etag.empty())
    throw PullError(PullError::Kind::network,
                    fmt::format("{}: the server states neither a checksum nor an ETag", shown_url(request.url)));
  StreamHash hash;  // an ETag that is no checksum may hold anything
  hash.add(etag.data(), etag.size());
  return "etag-" + hash.hex();
}

std::string HubAccess::file_url(const std::string& commit, const std::string& file) const {
  return fmt::format("{}/{}/resolve/{}/{}", endpoint_, model_.repository, commit, percent_encoded(file, true));
}

PullError HubAccess::explain(const HttpError& error) const {
  using Kind = PullError::Kind;
  const std::string& name = model_.repository;
  if (error.kind == HttpError::Kind::stopped) return {Kind::stopped, "stopped"};
  if (error.status == 401 && token_.empty())
    return {
        Kind::access,
        fmt::format("{0}: there is no such repository, or it is private or gated and needs a token: set HF_TOKEN, or "
                    "write the token to {1} (a token: {2}/settings/tokens)\n{3}",
                    name, token_file().string(), endpoint_, error.what())};
  if (error.status == 401)
    return {Kind::access,
            fmt::format("{}: there is no such repository, or the token is not accepted\n{}", name, error.what())};
  if (error.status == 403)
    return {Kind::access,
            fmt::format("{0}: the owner lets only some users download it: accept its conditions at {1}/{0} "
                        "with the account of the token{2}\n{3}",
                        name, endpoint_, token_.empty() ? ", and set HF_TOKEN" : "", error.what())};
  if (error.status == 404)
    return {Kind::access,
            fmt::format("{}: there is no such {}\n{}", name,
                        error.code == "EntryNotFound"      ? "file"
                        : error.code == "RevisionNotFound" ? fmt::format("revision, '{}'", model_.revision)
                                                           : "repository, or no such revision",
                        error.what())};
  return {Kind::network, error.what()};
}

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
