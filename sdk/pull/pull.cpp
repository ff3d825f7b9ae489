// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <system_error>

#include <baton/version.h>

#include "engine/base/errors.h"
#include "engine/base/files.h"
#include "engine/base/system/process.h"
#include "engine/model/gguf.h"
#include "sdk/hub/hub_cache.h"
#include "sdk/pull/download.h"
#include "sdk/pull/hub_access.h"

namespace baton {
namespace fs = std::filesystem;
namespace {

using PullFailure = PullError::Kind;

constexpr long kStallSeconds = 30;
constexpr long kAnswerStalls = 10;  // an answer that is no file may take so many times as long in all

long stall_seconds() {
  const std::string text = environment("HF_HUB_DOWNLOAD_TIMEOUT");
  long seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool sound = error == std::errc() && end == text.data() + text.size() && seconds >= 1 && seconds <= 86'400;
  return sound ? seconds : kStallSeconds;
}

/// Makes `link` a link to `blob`, in place of what has its name. A file system without links gets a copy.
void link_to_blob(const fs::path& link, const fs::path& blob) {
  fs::create_directories(link.parent_path());
  const fs::path relative = blob.lexically_relative(link.parent_path());
  std::error_code error;
  if (fs::read_symlink(link, error) == relative && !error) return;
  const fs::path aside =
      link.parent_path() / fmt::format(".{}.{}", link.filename().string().substr(0, 200), process_number());
  fs::remove(aside, error);
  fs::create_symlink(relative, aside, error);
  if (error) fs::copy_file(blob, aside);
  fs::rename(aside, link);
}

std::int64_t size_there(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return -1;
  const std::uintmax_t bytes = fs::file_size(file, error);
  return error ? -1 : static_cast<std::int64_t>(bytes);
}

/// Adds a size, if it is known; sizes are a server's words, so the sum stops at the largest number.
void add_bytes(std::int64_t& sum, std::int64_t bytes) {
  if (bytes > 0) sum += std::min(bytes, std::numeric_limits<std::int64_t>::max() - sum);
}

/// One file of a pull: where it comes from, where it goes, what the plan says of it.
struct PulledPiece {
  Download download;
  PullFile file;
};

class Puller {
 public:
  explicit Puller(const PullRequest& request)
      : request_(request),
        client_({std::string("baton/") + version(), stall_seconds(), stall_seconds() * kAnswerStalls, request.stop}) {}

  PullPlan run() {
    const ModelSource source = parse_source();
    plan_.source = std::visit([](const auto& model) { return text_of(model); }, source);
    if (request_.offline || hub_offline()) return offline(source);
    std::visit([this](const auto& model) { pull(model); }, source);
    return plan_;
  }

 private:
  static std::string text_of(const HubModel& model) { return "hf:" + model.text(); }
  static std::string text_of(const UrlModel& model) { return shown_url(model.url); }

  ModelSource parse_source() const {
    try {
      auto source = parse_model_source(request_.model);
      if (!source) source = parse_model_source("hf:" + request_.model);
      auto* hub = std::get_if<HubModel>(&*source);
      if (!request_.sha256.empty() && (hub != nullptr || !is_hex(request_.sha256, 64)))
        throw PullError(PullFailure::usage, hub != nullptr ? "a repository states its checksums; --sha256 is for URLs"
                                                           : "--sha256: expected 64 hexadecimal digits in lower case");
      if (request_.revision.empty()) return *source;
      if (hub == nullptr) throw PullError(PullFailure::usage, "a URL has no revisions; expected a repository");
      if (!is_safe_name(request_.revision))
        throw PullError(PullFailure::usage, "--revision: expected a branch, a tag or a commit");
      hub->revision = request_.revision;
      return *source;
    } catch (const ModelError& error) {
      throw PullError(PullFailure::usage, error.what());
    }
  }

  PullPlan offline(const ModelSource& source) {
    try {
      plan_.path = find_pulled(source);
      Download there;
      there.name = plan_.path.filename().string();
      there.target = plan_.path;
      there.checksum = checksum_of(request_.sha256);
      there.check_there = !request_.sha256.empty();
      check_there(there, request_.stop);
      return plan_;
    } catch (const ModelError& error) {
      throw PullError(PullFailure::access, fmt::format("offline mode (--offline, HF_HUB_OFFLINE): {}", error.what()));
    }
  }

  void pull(const HubModel& model) {
    const HubCache cache;
    HubAccess hub(client_, model, request_);
    try {
      pull(model, cache, hub);
    } catch (const HttpError& error) {
      throw hub.explain(error);
    }
  }

  void pull(const HubModel& model, const HubCache& cache, HubAccess& hub) {
    HubListing listing = hub.listing();
    std::vector<HubFile> files;
    files.reserve(listing.files.size());
    for (const ListedFile& listed : listing.files) files.push_back(listed.file);
    const ModelChoice chosen = choose(files, model);
    const fs::path snapshot = cache.snapshot(model.repository, listing.commit);
    plan_.revision = model.revision;
    plan_.commit = listing.commit;
    plan_.licence = listing.licence;
    plan_.gated = listing.gated;
    plan_.cache = cache.root();
    plan_.path = chosen.gguf.empty() ? snapshot : snapshot / chosen.gguf;
    for (const std::size_t index : chosen.files) {
      ListedFile& listed = listing.files[index];
      const std::string blob = hub.identify(listed, listing.commit);
      PulledPiece piece;
      piece.download = {listed.file.name,
                        hub.file_url(listing.commit, listed.file.name),
                        hub.token(),
                        listing.commit,
                        cache.blob(model.repository, blob),
                        cache.lock(model.repository, blob),
                        listed.file.bytes,
                        listed.checksum,
                        false};
      add(std::move(piece));
    }
    if (!download_all()) return;
    for (const PulledPiece& piece : pieces_) link_to_blob(snapshot / piece.file.name, piece.download.target);
    // Last, so that a revision that is being pulled again means the older files until the new ones are there.
    if (cache.commit(model.repository, model.revision) != listing.commit)
      write_whole(cache.reference(model.repository, model.revision), listing.commit, Links::replace);
  }

  static ModelChoice choose(const std::vector<HubFile>& files, const HubModel& model) {
    try {
      return choose_model(files, model.choice, model.repository);
    } catch (const ChoiceError& error) {
      throw PullError(PullFailure::usage, error.what());
    }
  }

  void pull(const UrlModel& model) {
    const auto part = gguf_part_name(model.name);
    if (part && part->count > 1 && !request_.sha256.empty())
      throw PullError(PullFailure::usage, "--sha256 is for a file in one part");
    const fs::path target = url_file(model);
    plan_.cache = target.parent_path();
    plan_.path = part ? target.parent_path() / part->of(1) : target;
    try {
      for (std::uint32_t number = 1; number <= (part ? part->count : 1); ++number) {
        const std::string name = part ? part->of(number) : model.name;
        PulledPiece piece;
        piece.download.name = name;
        piece.download.url = part ? model.sibling(name) : model.url;
        piece.download.target = target.parent_path() / name;
        piece.download.lock = target.parent_path() / (name + ".lock");
        piece.download.checksum = checksum_of(request_.sha256);
        piece.download.gguf_magic = true;
        piece.download.check_there = !request_.sha256.empty();
        piece.download.bytes = size_there(piece.download.target);
        if (piece.download.bytes < 0) piece.download.bytes = size_at(piece.download.url);
        add(std::move(piece));
      }
      download_all();
    } catch (const HttpError& error) {
      if (error.kind == HttpError::Kind::stopped) throw PullError(PullFailure::stopped, "stopped");
      throw PullError(error.status >= 400 && error.status < 500 ? PullFailure::access : PullFailure::network,
                      error.what());
    }
  }

  /// Returns the size of the file at a URL; -1 if the server does not say it.
  std::int64_t size_at(const std::string& url) {
    if (url.starts_with("file:")) {
      const std::int64_t bytes = size_there(path_of_file_url(url));
      if (bytes < 0)
        throw PullError(PullFailure::access,
                        fmt::format("{}: expected a file that can be read", path_of_file_url(url).string()));
      return bytes;
    }
    HttpRequest request;
    request.url = url;
    request.head = true;
    try {
      const HttpReply reply = client_.send(
          request, [](const HttpReply&) {}, [](std::span<const std::byte>) {});
      const std::string text = reply.header("content-length");
      std::int64_t bytes = -1;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
      return error == std::errc() && end == text.data() + text.size() && bytes > 0 ? bytes : -1;
    } catch (const HttpError& error) {
      if (error.kind == HttpError::Kind::stopped || error.status == 404) throw;
      return -1;  // the download says what is wrong, or works all the same
    }
  }

  void add(PulledPiece piece) {
    const Download& download = piece.download;
    const std::int64_t there = size_there(download.target);
    piece.file = {download.name, download.bytes, download.checksum.text(), 0, false};
    piece.file.complete = there >= 0 && (download.bytes < 0 || there == download.bytes);
    if (piece.file.complete) piece.file.bytes = there;
    const std::int64_t part = size_there(download.target.string() + ".incomplete");
    piece.file.present = piece.file.complete ? there : std::max<std::int64_t>(0, part);
    if (download.bytes >= 0) piece.file.present = std::min(piece.file.present, download.bytes);
    plan_.files.push_back(piece.file);
    pieces_.push_back(std::move(piece));
  }

  /// False for a dry run.
  bool download_all() {
    if (request_.on_plan) request_.on_plan(plan_);
    if (request_.dry_run) return false;
    check_room();
    const bool sized =
        std::all_of(pieces_.begin(), pieces_.end(), [](const PulledPiece& piece) { return piece.file.bytes >= 0; });
    std::int64_t before = 0;
    for (std::size_t at = 0; at < pieces_.size(); ++at) {
      const PulledPiece& piece = pieces_[at];
      std::int64_t bytes = piece.file.bytes;
      if (piece.file.complete) {
        check_there(piece.download, request_.stop);
      } else {
        DownloadSettings settings{request_.retries, request_.stop, {}, request_.on_note};
        settings.on_bytes = [&](std::int64_t done) {
          if (request_.on_progress)
            request_.on_progress({piece.file.name, before + done, sized ? plan_.total_bytes() : -1});
        };
        bytes = baton::download(client_, piece.download, settings);
        plan_.files[at].bytes = bytes;
      }
      before += bytes;
    }
    return true;
  }

  void check_room() const {
    fs::path folder = plan_.cache;
    std::error_code error;
    while (!fs::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
    const fs::space_info space = fs::space(folder, error);
    if (error || space.available == static_cast<std::uintmax_t>(-1)) return;
    const std::int64_t needed = plan_.remaining_bytes();
    if (needed > 0 && space.available < static_cast<std::uintmax_t>(needed))
      throw PullError(
          PullFailure::storage,
          fmt::format("{} are needed in {}, and {} are free; HF_HOME and HF_HUB_CACHE choose another folder",
                      size_text(needed), plan_.cache.string(), size_text(static_cast<std::int64_t>(space.available))));
  }

  const PullRequest& request_;
  HttpClient client_;
  PullPlan plan_;
  std::vector<PulledPiece> pieces_;
};

}  // namespace

std::int64_t PullPlan::total_bytes() const {
  std::int64_t sum = 0;
  for (const PullFile& file : files) add_bytes(sum, file.bytes);
  return sum;
}

std::int64_t PullPlan::remaining_bytes() const {
  std::int64_t sum = 0;
  for (const PullFile& file : files) add_bytes(sum, file.bytes - file.present);
  return sum;
}

PullPlan pull_model(const PullRequest& request) {
  try {
    return Puller(request).run();
  } catch (const fs::filesystem_error& error) {
    throw PullError(PullFailure::storage, error.what());
  } catch (const ModelError& error) {
    throw PullError(PullFailure::network, error.what());
  }
}

}  // namespace baton
