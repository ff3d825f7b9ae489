// SPDX-License-Identifier: Apache-2.0
// Downloading published models into the cache that find_model() looks in. The only room that opens connections
// (libcurl); the library for hosts does not link it. docs/models.md, docs/decisions/program.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

namespace baton {

class PullError : public std::runtime_error {
 public:
  enum class Kind {
    usage,        // the name is invalid, or means no model or several
    access,       // not found, private, gated, offline
    network,      // no answer, or one that makes no sense
    checksum,     // the contents are not those that were announced
    storage,      // no room, or no permission to write
    stopped,      // the caller stopped it; what was downloaded resumes
    unavailable,  // built without libcurl
  };
  PullError(Kind what_failed, const std::string& text) : std::runtime_error(text), kind(what_failed) {}
  Kind kind;
};

struct PullFile {
  std::string name;          // path in the repository
  std::int64_t bytes = -1;   // -1: the server does not say
  std::string checksum;      // "sha256:...", "git-sha1:..."; empty: the server gives none
  std::int64_t present = 0;  // bytes that were in the cache before
  bool complete = false;     // all of it was
};

/// The files that a pull will download, known before it begins.
struct PullPlan {
  std::string source;          // "hf:org/name:Q4_K_M" or an URL, without secrets; as `--model` takes it
  std::string revision;        // a repository's
  std::string commit;          // a repository's
  std::string licence;         // as the repository states it; empty: it does not
  bool gated = false;          // the owner lets only some users download
  std::filesystem::path path;  // the GGUF file, or the model folder
  std::filesystem::path cache;
  std::vector<PullFile> files;

  std::int64_t total_bytes() const;      // sum over the files whose size is known
  std::int64_t remaining_bytes() const;  // the part of it that is not in the cache
};

struct PullProgress {
  std::string file;
  std::int64_t done = 0;   // bytes of all files, those present before included
  std::int64_t total = 0;  // bytes of all files; -1: unknown
};

struct PullRequest {
  std::string model;     // "org/name[@revision][:choice]", with or without "hf:"; or an https:, http: or file: URL
  std::string revision;  // in place of main, or empty
  std::string sha256;    // what a URL's file must have, or empty
  bool offline = false;  // only look into the cache
  bool dry_run = false;  // only ask what there is to download
  int retries = 5;       // after failures of the network in a row
  std::stop_token stop;
  std::function<void(const PullPlan& plan)> on_plan;  // before the first byte
  std::function<void(const PullProgress& progress)> on_progress;
  std::function<void(const std::string& text)> on_note;  // a retry, waiting for another program
};

/// Downloads what is missing; blocks. Reads HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE,
/// HF_HUB_OFFLINE, HF_HUB_DOWNLOAD_TIMEOUT and the variables for proxies that libcurl knows. A file appears under its
/// name once it is complete and its checksum is right. Throws PullError; texts of servers in its message are as they
/// came. Calls from several threads or processes at once are safe: who comes second waits.
PullPlan pull_model(const PullRequest& request);

}  // namespace baton
