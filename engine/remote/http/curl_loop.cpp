// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/curl_handles.h"
#include "engine/base/errors.h"
#include "engine/base/system/process.h"
#include "engine/base/utf8.h"
#include "engine/remote/http_loop.h"

namespace baton {
namespace {

constexpr long kConnectMs = 10'000;
constexpr int kPollMs = 60'000;                   // a bound of one wait; work that is posted ends it
constexpr std::size_t kMaxHeaders = 128u << 10;   // bytes of one answer's
constexpr std::size_t kMaxErrorBody = 64u << 10;  // bytes that are read of an answer that is not 2xx
constexpr std::size_t kPosted = 64;               // functions for which there is room beforehand

struct MultiDeleter {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
bool is_transient_status(long status) {
  return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501);
}

/// One call on its way, as libcurl's callbacks see it.
struct CurlTransfer {
  HttpCall call;
  CurlHandle easy;
  CurlHeaders headers;
  std::array<char, CURL_ERROR_SIZE> words{};
  HttpEnd end;
  std::size_t header_bytes = 0, bytes = 0;
  std::string thrown;  // what on_bytes threw, or a limit

  static std::size_t on_header(char*, std::size_t size, std::size_t count, void* self) {
    CurlTransfer& transfer = *static_cast<CurlTransfer*>(self);
    transfer.header_bytes += size * count;
    if (transfer.header_bytes <= kMaxHeaders) return size * count;
    try_to([&] { transfer.thrown = fmt::format("it sends more than {} KiB of headers", kMaxHeaders >> 10); });
    return 0;
  }

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self) {
    CurlTransfer& transfer = *static_cast<CurlTransfer*>(self);
    const std::string_view bytes(data, size * count);
    try {
      curl_easy_getinfo(transfer.easy.get(), CURLINFO_RESPONSE_CODE, &transfer.end.status);
      if (transfer.end.status < 200 || transfer.end.status >= 300) {
        const std::size_t room = kMaxErrorBody - std::min(kMaxErrorBody, transfer.end.body.size());
        transfer.end.body += bytes.substr(0, room);
        return room == 0 ? 0 : bytes.size();
      }
      transfer.bytes += bytes.size();
      if (transfer.bytes > transfer.call.max_bytes)
        throw std::runtime_error(fmt::format("it answers with more than {} MiB", transfer.call.max_bytes >> 20));
      if (transfer.call.on_bytes) transfer.call.on_bytes(bytes);
    } catch (const std::exception& error) {
      if (!try_to([&] { transfer.thrown = message_of(error); })) transfer.thrown = "out of memory";
      return 0;
    } catch (...) {  // libcurl cannot be left by an exception
      try_to([&] { transfer.thrown = "a callback threw something other than an exception"; });
      return 0;
    }
    return bytes.size();
  }

  /// Tells libcurl about `call`.
  void set_up() {
    const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(easy.get(), option, value); };
    add_header(headers, "Accept: application/json, text/event-stream");
    add_header(headers, "Expect:");  // no question before a long prompt
    if (!call.body.empty()) add_header(headers, "Content-Type: application/json");
    if (!call.key.empty()) add_header(headers, "Authorization: Bearer " + call.key);
    set(CURLOPT_URL, call.url.c_str());
    set(CURLOPT_PROTOCOLS_STR, "https,http");
    set(CURLOPT_FOLLOWLOCATION, 0L);  // the key is for this address alone
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TCP_NODELAY, 1L);
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set(CURLOPT_USERAGENT, "baton");
    set(CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(call.stall.count() / 1000)));
    set(CURLOPT_ERRORBUFFER, words.data());
    set(CURLOPT_HTTPHEADER, headers.get());
    set(CURLOPT_HEADERFUNCTION, &CurlTransfer::on_header);
    set(CURLOPT_HEADERDATA, static_cast<void*>(this));
    set(CURLOPT_WRITEFUNCTION, &CurlTransfer::on_body);
    set(CURLOPT_WRITEDATA, static_cast<void*>(this));
    const std::string authorities = curl_authorities();
    if (!authorities.empty()) set(CURLOPT_CAINFO, authorities.c_str());
    if (call.body.empty()) return;
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
    set(CURLOPT_POSTFIELDS, call.body.c_str());
  }

  /// Says in `end` how libcurl ended it.
  void finish(CURLcode code) {
    end.url = call.url;
    curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &end.status);
    const bool refused = end.status != 0 && (end.status < 200 || end.status >= 300);
    if (refused) {
      curl_off_t wait = 0;
      curl_easy_getinfo(easy.get(), CURLINFO_RETRY_AFTER, &wait);
      end.wait_seconds = static_cast<double>(wait);
      end.passing = is_transient_status(end.status);
    } else if (!thrown.empty()) {
      end.problem = thrown;
    } else if (code != CURLE_OK) {
      end.problem = said(words.front() != '\0' ? words.data() : curl_easy_strerror(code));
      end.passing = is_transient(code);
    }
  }
};

class CurlLoop final : public HttpLoop {
 public:
  CurlLoop() {
    start_curl();
    multi_.reset(curl_multi_init());
    if (!multi_) throw std::bad_alloc();
    posted_.reserve(kPosted);
    taken_.reserve(kPosted);
    thread_ = std::thread([this] { run(); });
  }
  ~CurlLoop() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    curl_multi_wakeup(multi_.get());
    thread_.join();
    for (const auto& [id, transfer] : transfers_) curl_multi_remove_handle(multi_.get(), transfer->easy.get());
  }

  void post(std::function<void()> work) override {
    {
      const std::lock_guard lock(mutex_);
      posted_.push_back(std::move(work));
    }
    curl_multi_wakeup(multi_.get());
  }

  CallId start(HttpCall call) override {
    auto transfer = std::make_unique<CurlTransfer>();
    transfer->call = std::move(call);
    transfer->easy.reset(curl_easy_init());
    if (!transfer->easy) throw std::bad_alloc();
    transfer->set_up();
    starting_.push_back(last_id_ + 1);
    transfers_.emplace(++last_id_, std::move(transfer));
    return last_id_;
  }

  void cancel(CallId id) override {
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) return;
    curl_multi_remove_handle(multi_.get(),
                             found->second->easy.get());  // closes a connection in the middle of an answer
    transfers_.erase(found);
  }

  void at(Clock::time_point when, std::function<void()> work) override { timers_.emplace(when, std::move(work)); }

 private:
  void run() {
    block_pipe_signal();
    while (true) {
      {
        const std::lock_guard lock(mutex_);
        if (closing_) return;
        taken_.swap(posted_);
      }
      for (const auto& one : taken_) try_to(one);
      taken_.clear();
      run_timers();
      int running = 0;
      curl_multi_perform(multi_.get(), &running);
      end_transfers();
      add_started();
      curl_multi_poll(multi_.get(), nullptr, 0, wait_ms(), nullptr);
    }
  }

  /// Outside of libcurl's callbacks, in which none may be added.
  void add_started() {
    for (const CallId id : std::exchange(starting_, {})) {
      const auto found = transfers_.find(id);
      if (found == transfers_.end()) continue;  // cancelled
      if (curl_multi_add_handle(multi_.get(), found->second->easy.get()) == CURLM_OK) continue;
      const std::unique_ptr<CurlTransfer> transfer = std::move(found->second);
      transfers_.erase(found);
      try_to([&] { transfer->end.problem = "out of memory"; });
      if (transfer->call.on_end) try_to([&] { transfer->call.on_end(std::move(transfer->end)); });
    }
  }

  void run_timers() {
    while (!timers_.empty() && timers_.begin()->first <= Clock::now()) {
      const auto work = std::move(timers_.begin()->second);
      timers_.erase(timers_.begin());
      try_to(work);
    }
  }

  int wait_ms() const {
    if (!starting_.empty()) return 0;
    if (timers_.empty()) return kPollMs;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, kPollMs));
  }

  void end_transfers() {
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      const auto found = std::find_if(transfers_.begin(), transfers_.end(),
                                      [&](const auto& one) { return one.second->easy.get() == message->easy_handle; });
      if (found == transfers_.end()) continue;
      const std::unique_ptr<CurlTransfer> transfer = std::move(found->second);
      transfers_.erase(found);
      curl_multi_remove_handle(multi_.get(), transfer->easy.get());
      if (!try_to([&] { transfer->finish(code); })) transfer->end.problem = "out of memory";
      if (transfer->call.on_end) try_to([&] { transfer->call.on_end(std::move(transfer->end)); });
    }
  }

  std::unique_ptr<CURLM, MultiDeleter> multi_;
  std::map<CallId, std::unique_ptr<CurlTransfer>> transfers_;       // the loop's thread
  std::multimap<Clock::time_point, std::function<void()>> timers_;  // the loop's thread
  std::vector<CallId> starting_;                                    // the loop's thread; not yet libcurl's
  std::vector<std::function<void()>> taken_;                        // the loop's thread; of posted_, being run
  CallId last_id_ = 0;                                              // the loop's thread
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<HttpLoop> make_http_loop() { return std::make_unique<CurlLoop>(); }

}  // namespace baton
