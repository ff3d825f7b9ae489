// SPDX-License-Identifier: Apache-2.0
// Digest: SHA-256 or SHA-1 of bytes that come in pieces, by OpenSSL, on Windows by the system.
// The checksums that a hub states: SHA-256 of a file, or SHA-1 of what git stores for one (its size, then its bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/hub/model_source.h"
#include "sdk/pull/http.h"
#include "sdk/pull/pull.h"

namespace baton {

/// Members throw std::runtime_error if the system's policy forbids the algorithm.
class Digest {
 public:
  enum class Algorithm { sha256, sha1 };
  explicit Digest(Algorithm algorithm);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(std::span<const std::byte> bytes);
  /// Once, at the end.
  std::vector<unsigned char> result();

 private:
  struct Computation;
  std::unique_ptr<Computation> computation_;
};

struct Checksum {
  enum class Kind { none, sha256, git_sha1 };
  Kind kind = Kind::none;
  std::string hex;

  /// "sha256:...", "git-sha1:..."; empty for none.
  std::string text() const;
};

/// The kind that so many hexadecimal digits have, 64 or 40; none for any other text.
Checksum checksum_of(const std::string& hex);

/// The checksum of a file, in hexadecimal digits. Empty when stopped. Throws std::filesystem::filesystem_error when it
/// cannot be read.
std::string checksum_of_file(const std::filesystem::path& file, Checksum::Kind kind, const std::stop_token& stop);

/// The checksum of bytes that are added in pieces.
class ChecksumStream {
 public:
  /// `bytes`: size of the whole file, which git_sha1 begins with.
  ChecksumStream(Checksum::Kind kind, std::int64_t bytes);

  void add(std::span<const std::byte> bytes);
  /// Once, at the end. Empty for none.
  std::string hex();

 private:
  std::unique_ptr<Digest> digest_;  // null: none
};

// Asking a hub about a repository: requests with the user's token, answers in the words of who has to act on them, and
// what it says: commit, licence and files. The server is not trusted: every name, size and checksum is checked here.

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

class HubAccess {
 public:
  /// Reads HF_ENDPOINT and the token. Throws PullError for a token that cannot be one.
  HubAccess(HttpClient& client, HubModel model, const PullRequest& request);

  /// Commit, licence and files; with sizes and checksums as far as the hub states them. Throws PullError, HttpError.
  HubListing listing();
  /// Completes a file's size and checksum from the headers of its download. Returns the name of its blob.
  std::string identify(ListedFile& listed, const std::string& commit);
  std::string file_url(const std::string& commit, const std::string& file) const;
  const std::string& token() const { return token_; }

  /// Explains an error of the hub for this repository.
  PullError explain(const HttpError& error) const;

 private:
  std::string get(const std::string& url, HttpReply* reply = nullptr);
  std::vector<ListedFile> tree(const std::string& commit);

  HttpClient& client_;
  HubModel model_;
  const PullRequest& request_;
  std::string endpoint_;
  std::string token_;
};

}  // namespace baton
