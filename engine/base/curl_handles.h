// SPDX-License-Identifier: Apache-2.0
// RAII handles and helpers for libcurl. Includes curl.h, so only the rooms that use libcurl may include this file.
#pragma once

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>

namespace baton {

/// Initialises libcurl once per process. Any thread may call it.
inline void start_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

struct CurlHandleDeleter {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
using CurlHandle = std::unique_ptr<CURL, CurlHandleDeleter>;

struct CurlListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
/// A list of header lines.
using CurlHeaders = std::unique_ptr<curl_slist, CurlListDeleter>;

/// Appends a line "Name: value". Throws std::bad_alloc.
inline void add_header(CurlHeaders& headers, const std::string& line) {
  curl_slist* longer = curl_slist_append(headers.get(), line.c_str());
  if (longer == nullptr) throw std::bad_alloc();
  static_cast<void>(headers.release());
  headers.reset(longer);
}

/// Returns the file of trusted certificate authorities from the environment variables that the program curl reads.
/// Empty: libcurl's default.
inline std::string curl_authorities() {
  for (const char* variable : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
    if (const char* file = std::getenv(variable); file != nullptr && *file != '\0') return file;
  }
  return {};
}

/// True if another attempt may succeed.
inline bool is_transient(CURLcode code) {
  constexpr std::array kTransient = {CURLE_COULDNT_RESOLVE_PROXY,
                                     CURLE_COULDNT_RESOLVE_HOST,
                                     CURLE_COULDNT_CONNECT,
                                     CURLE_OPERATION_TIMEDOUT,
                                     CURLE_PARTIAL_FILE,
                                     CURLE_RECV_ERROR,
                                     CURLE_SEND_ERROR,
                                     CURLE_GOT_NOTHING,
                                     CURLE_HTTP2,
                                     CURLE_HTTP2_STREAM};
  return std::find(kTransient.begin(), kTransient.end(), code) != kTransient.end();
}

}  // namespace baton
