// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/files.h"
#include "engine/base/system/file.h"
#include "sdk/hub/model_source.h"
#include "sdk/pull/hub_access.h"
#include "sdk/pull/pull.h"

namespace baton {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;

}  // namespace

std::string Checksum::text() const {
  if (kind == Kind::none) return "";
  return fmt::format("{}:{}", kind == Kind::sha256 ? "sha256" : "git-sha1", hex);
}

Checksum checksum_of(const std::string& hex) {
  if (is_hex(hex, 64)) return {Checksum::Kind::sha256, hex};
  if (is_hex(hex, 40)) return {Checksum::Kind::git_sha1, hex};
  return {};
}

std::string checksum_of_file(const std::filesystem::path& file, Checksum::Kind kind, const std::stop_token& stop) {
  const auto failure = [&file] {
    return std::filesystem::filesystem_error("cannot read", file, std::error_code(errno, std::generic_category()));
  };
  const UniqueFd opened = open_file(file, Open::read | Open::sequential);
  const std::optional<FileStatus> status = opened ? status_of(opened) : std::nullopt;
  if (!status) throw failure();
  ChecksumStream stream(kind, status->bytes);
  std::vector<std::byte> block(kReadBytes);
  while (!stop.stop_requested()) {
    const std::int64_t count = read_some(opened, block);
    if (count < 0) throw failure();
    if (count == 0) return stream.hex();
    stream.add(std::span(block).first(static_cast<std::size_t>(count)));
  }
  return "";
}

ChecksumStream::ChecksumStream(Checksum::Kind kind, std::int64_t bytes) {
  if (kind == Checksum::Kind::none) return;
  const bool sha256 = kind == Checksum::Kind::sha256;
  digest_ = std::make_unique<Digest>(sha256 ? Digest::Algorithm::sha256 : Digest::Algorithm::sha1);
  if (sha256) return;
  std::string head = fmt::format("blob {}", bytes);
  head += '\0';
  add(std::as_bytes(std::span(head)));
}

void ChecksumStream::add(std::span<const std::byte> bytes) {
  if (digest_) digest_->add(bytes);
}

std::string ChecksumStream::hex() {
  std::string text;
  if (!digest_) return text;
  for (const unsigned char byte : digest_->result()) text += fmt::format("{:02x}", byte);
  return text;
}

namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBlock = 1 << 20;  // bytes read at once
constexpr std::size_t kMaxValidator = 512;

fs::path with_suffix(const fs::path& path, const char* suffix) { return path.string() + suffix; }

}  // namespace

PartFile::PartFile(fs::path target)
    : target_(std::move(target)),
      part_(with_suffix(target_, ".incomplete")),
      validator_(with_suffix(target_, ".incomplete.etag")) {
  fs::create_directories(target_.parent_path());
  descriptor_ = open_file(part_, Open::read | Open::write | Open::create | Open::no_link);
  const std::optional<FileStatus> status = descriptor_ ? status_of(descriptor_) : std::nullopt;
  if (!status) fail(errno);
  if (status->kind != FileKind::regular) fail(EINVAL);
  bytes_ = status->bytes;
}

PartFile::~PartFile() {
  if (descriptor_ && bytes_ == 0) discard();
}

void PartFile::fail(int error) const {
  throw fs::filesystem_error("cannot write", part_, std::error_code(error, std::generic_category()));
}

void PartFile::restart() {
  if (!set_size(descriptor_, 0)) fail(errno);
  bytes_ = 0;
  stream_ = ChecksumStream(kind_, size_);
}

void PartFile::append(std::span<const std::byte> bytes) {
  stream_.add(bytes);
  if (!write_at(descriptor_, bytes, bytes_)) fail(errno);
  bytes_ += static_cast<std::int64_t>(bytes.size());
}

bool PartFile::add_from_disk(ChecksumStream& stream, const std::stop_token& stop) const {
  std::vector<std::byte> block(kBlock);
  for (std::int64_t at = 0; at < bytes_;) {
    if (stop.stop_requested()) return false;
    const std::int64_t count = read_at(descriptor_, block, at);
    if (count <= 0) fail(count == 0 ? EIO : errno);
    stream.add(std::span(block).first(static_cast<std::size_t>(count)));
    at += count;
  }
  return true;
}

bool PartFile::expect(Checksum::Kind kind, std::int64_t size, const std::stop_token& stop) {
  kind_ = kind == Checksum::Kind::git_sha1 && size < 0 ? Checksum::Kind::none : kind;
  size_ = size;
  stream_ = ChecksumStream(kind_, size_);
  return kind_ == Checksum::Kind::none || add_from_disk(stream_, stop);
}

std::string PartFile::hex(Checksum::Kind kind, const std::stop_token& stop) {
  if (kind == kind_ && (kind != Checksum::Kind::git_sha1 || bytes_ == size_)) {
    ChecksumStream done = std::exchange(stream_, ChecksumStream(Checksum::Kind::none, 0));
    return done.hex();
  }
  ChecksumStream stream(kind, bytes_);
  return add_from_disk(stream, stop) ? stream.hex() : std::string();
}

std::string PartFile::head(std::size_t count) const {
  std::string bytes(count, '\0');
  const std::int64_t got = read_at(descriptor_, std::as_writable_bytes(std::span(bytes)), 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return bytes;
}

std::string PartFile::validator() const {
  std::ifstream file(validator_, std::ios::binary);
  std::string text(kMaxValidator, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return "";  // it becomes a header
  return text;
}

void PartFile::set_validator(const std::string& text) {
  if (!text.empty() && text.size() <= kMaxValidator) return write_whole(validator_, text, Links::replace);
  std::error_code ignored;
  fs::remove(validator_, ignored);
}

void PartFile::commit() {
  if (!flush_to_disk(descriptor_) || !descriptor_.close()) fail(errno);
  fs::rename(part_, target_);
  set_validator("");
}

void PartFile::discard() {
  descriptor_.reset();
  std::error_code ignored;
  fs::remove(part_, ignored);
  set_validator("");
}

namespace {

using Kind = HttpError::Kind;

constexpr std::int64_t kProgressBytes = 64 * 1024;  // an attempt that came so much further counts as progress

/// Bytes that a file whose size was not announced may add to a folder: nine tenths of what is free.
std::int64_t room_in(const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  const std::uintmax_t most = static_cast<std::uintmax_t>(kMaxFileBytes);
  return static_cast<std::int64_t>(error ? most : std::min(most, space.available - space.available / 10));
}

[[noreturn]] void stopped() { throw PullError(PullError::Kind::stopped, "stopped"); }

/// A number that is all of the text.
std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

struct ContentRange {
  std::int64_t from = 0;
  std::int64_t total = -1;  // -1: "*"
};

/// "bytes 100-199/200".
std::optional<ContentRange> parse_content_range(std::string_view text) {
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with("bytes ") || dash == text.npos || slash == text.npos || dash > slash) return std::nullopt;
  const auto from = number_of(text.substr(6, dash - 6));
  const std::string_view total = text.substr(slash + 1);
  const auto all = total == "*" ? std::optional<std::int64_t>(-1) : number_of(total);
  if (!from || !all) return std::nullopt;
  return ContentRange{*from, *all};
}

/// A strong ETag, else a date: what If-Range accepts.
std::string validator_of(const HttpReply& reply) {
  const std::string etag = reply.header("etag");
  return !etag.empty() && !etag.starts_with("W/") ? etag : reply.header("last-modified");
}

class Fetch {
 public:
  Fetch(HttpClient& client, const Download& what, const DownloadSettings& settings)
      : client_(client), what_(what), settings_(settings), part_(what.target) {
    if (what.bytes < 0) limit_ = part_.bytes() + room_in(what.target.parent_path());
  }

  std::int64_t run() {
    const bool has_checksum = what_.checksum.kind != Checksum::Kind::none;
    if ((what_.bytes >= 0 && part_.bytes() > what_.bytes) || (!has_checksum && part_.validator().empty()))
      part_.restart();
    resumed_ = part_.bytes() > 0;
    receive();
    if (!right() && resumed_) {
      note("the checksum of the resumed download is wrong; it begins again");
      part_.restart();
      resumed_ = false;
      receive();
      right();
    }
    if (found_ != what_.checksum.hex) refuse_contents();
    check_magic();
    part_.commit();
    return part_.bytes();
  }

 private:
  void note(const std::string& text) const {
    if (settings_.on_note) settings_.on_note(fmt::format("{}: {}", what_.name, text));
  }

  HttpError refused(const std::string& text) const {
    return {Kind::refused, fmt::format("{}: {}", shown_url(what_.url), text)};
  }

  void receive() {
    if (!part_.expect(what_.checksum.kind, what_.bytes, settings_.stop)) stopped();
    if (what_.url.starts_with("file:")) return copy();
    Retries retries(settings_.retries, settings_.stop, [this](const std::string& text) { note(text); });
    std::int64_t furthest = part_.bytes();
    retries.run([&] {
      try {
        attempt();
      } catch (const HttpError& error) {
        if (part_.bytes() >= furthest + kProgressBytes) retries.progressed();
        furthest = std::max(furthest, part_.bytes());
        if (error.status != 416 || part_.bytes() == 0) throw;
        part_.restart();  // the part belongs to another version of the file
        attempt();
      }
    });
  }

  void attempt() {
    if (what_.bytes >= 0 && part_.bytes() == what_.bytes) return;
    HttpRequest request;
    request.url = what_.url;
    request.token = what_.token;
    request.is_file = true;
    request.from = part_.bytes();
    if (what_.checksum.kind == Checksum::Kind::none) request.if_range = part_.validator();
    std::int64_t expected = what_.bytes;
    client_.send(
        request, [&](const HttpReply& reply) { expected = begin(reply); },
        [&](std::span<const std::byte> bytes) {
          if (expected >= 0 && static_cast<std::int64_t>(bytes.size()) > expected - part_.bytes())
            throw refused(fmt::format("it sends more than the {} bytes that were announced", expected));
          if (static_cast<std::int64_t>(bytes.size()) > limit_ - part_.bytes()) {
            part_.discard();
            throw too_large();
          }
          part_.append(bytes);
          if (settings_.on_bytes) settings_.on_bytes(part_.bytes());
        });
    if (expected >= 0 && part_.bytes() < expected)
      throw HttpError(Kind::transient,
                      fmt::format("{}: cut off after {} of {} bytes", shown_url(what_.url), part_.bytes(), expected));
  }

  /// Checks the headers; returns the size of the whole file, or -1.
  std::int64_t begin(const HttpReply& reply) {
    const auto commit = reply.linked.find("x-repo-commit");
    if (!what_.commit.empty() && commit != reply.linked.end() && commit->second != what_.commit)
      throw refused(fmt::format("it is of commit '{}', expected {}", commit->second.substr(0, 64), what_.commit));
    std::int64_t total = -1;
    if (reply.status == 206) {
      const auto range = parse_content_range(reply.header("content-range"));
      if (!range || range->from != part_.bytes())
        throw refused(fmt::format("Content-Range is '{}', expected it to begin at byte {}",
                                  reply.header("content-range").substr(0, 80), part_.bytes()));
      total = range->total;
      resumed_ = true;
    } else {
      if (part_.bytes() > 0) {
        note("the server sends the file from its beginning");
        part_.restart();
        resumed_ = false;
      }
      total = number_of(reply.header("content-length")).value_or(-1);
      if (what_.checksum.kind == Checksum::Kind::none) part_.set_validator(validator_of(reply));
    }
    if (what_.bytes >= 0 && total >= 0 && total != what_.bytes)
      throw refused(fmt::format("the file has {} bytes, expected the {} that were announced", total, what_.bytes));
    if (total > limit_) throw too_large();
    return what_.bytes >= 0 ? what_.bytes : total;
  }

  void copy() {
    const fs::path from = path_of_file_url(what_.url);
    const UniqueFd file = open_file(from, Open::read | Open::sequential);
    if (std::error_code error; !file || !fs::is_regular_file(from, error))
      throw PullError(PullError::Kind::access, fmt::format("{}: expected a file that can be read", from.string()));
    part_.restart();
    std::vector<std::byte> block(1 << 20);
    while (true) {
      if (settings_.stop.stop_requested()) stopped();
      const std::int64_t count = read_some(file, block);
      if (count < 0) throw fs::filesystem_error("cannot read", from, std::error_code(errno, std::generic_category()));
      if (count == 0) return;
      part_.append(std::span(block).first(static_cast<std::size_t>(count)));
      if (settings_.on_bytes) settings_.on_bytes(part_.bytes());
    }
  }

  /// Whether the contents have the checksum if one is known; sets found_.
  bool right() {
    found_.clear();
    if (what_.checksum.kind == Checksum::Kind::none) return true;
    found_ = part_.hex(what_.checksum.kind, settings_.stop);
    if (found_.empty()) stopped();
    return found_ == what_.checksum.hex;
  }

  PullError too_large() const {
    return {PullError::Kind::storage,
            fmt::format("{}: its size was not announced, and it has more than the {} that it may take in {}",
                        what_.name, size_text(limit_), what_.target.parent_path().string())};
  }

  [[noreturn]] void refuse_contents() {
    part_.discard();
    throw PullError(PullError::Kind::checksum,
                    fmt::format("{}: the checksum of what came from {} is {}, expected {}; it was removed", what_.name,
                                shown_url(what_.url), found_, what_.checksum.text()));
  }

  void check_magic() {
    if (!what_.gguf_magic) return;
    const std::string head = part_.head(128);
    if (head.starts_with("GGUF")) return;
    part_.discard();
    const std::string what =
        head.starts_with("version https://git-lfs") ? "it is a pointer of Git LFS" : "it does not begin with GGUF";
    throw PullError(PullError::Kind::checksum, fmt::format("{}: {}; expected a GGUF file (is the URL that of a page?)",
                                                           shown_url(what_.url), what));
  }

  HttpClient& client_;
  const Download& what_;
  const DownloadSettings& settings_;
  PartFile part_;
  std::int64_t limit_ = kMaxFileBytes;  // limit of the file's bytes
  bool resumed_ = false;                // some bytes are older than this download
  std::string found_;                   // the checksum of what came
};

}  // namespace

void check_there(const Download& what, const std::stop_token& stop) {
  if (!what.check_there) return;
  const std::string found = checksum_of_file(what.target, what.checksum.kind, stop);
  if (found.empty()) stopped();
  if (found == what.checksum.hex) return;
  throw PullError(
      PullError::Kind::checksum,
      fmt::format("{}: the checksum of {}, which was pulled before, is {}, expected {}; delete the file to "
                  "download it again",
                  what.name, what.target.string(), Checksum{what.checksum.kind, found}.text(), what.checksum.text()));
}

std::int64_t download(HttpClient& client, const Download& what, const DownloadSettings& settings) {
  const FileLock lock(what.lock, settings.stop, [&] {
    if (settings.on_note) settings.on_note(fmt::format("{}: another program is downloading it; waiting", what.name));
  });
  if (!lock.locked()) stopped();
  std::error_code error;
  if (fs::is_regular_file(what.target, error)) {
    const auto bytes = static_cast<std::int64_t>(fs::file_size(what.target, error));
    if (!error && (what.bytes < 0 || bytes == what.bytes)) {
      check_there(what, settings.stop);
      return bytes;
    }
  }
  return Fetch(client, what, settings).run();
}

fs::path path_of_file_url(const std::string& url) {
  return path_of_address(percent_decoded(shown_url(url).substr(std::string_view("file://").size())));
}

}  // namespace baton
