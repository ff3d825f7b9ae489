// SPDX-License-Identifier: Apache-2.0
// Asking a hub about a repository: requests with the user's token, and answers in the words of who has to act on them.
#pragma once

#include <functional>
#include <string>

#include "sdk/hub/model_source.h"
#include "sdk/pull/http.h"
#include "sdk/pull/hub_listing.h"
#include "sdk/pull/pull.h"

namespace baton {

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

  /// What an error of the hub means for this repository.
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
