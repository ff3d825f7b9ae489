// SPDX-License-Identifier: Apache-2.0
// What a request is refused with, in the form of OpenAI's interface.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace baton::serve {

/// Ends a request. what() is for the client: it never holds a key, a path of the server or another client's text.
class ApiError : public std::runtime_error {
 public:
  ApiError(int http_status, std::string error_code, const std::string& message, std::string parameter = {},
           int try_again_s = 0)
      : std::runtime_error(message),
        status(http_status),
        code(std::move(error_code)),
        param(std::move(parameter)),
        retry_s(try_again_s) {}

  int status;         // of HTTP, 4xx or 5xx
  std::string code;   // stable, "model_not_found"
  std::string param;  // the field of the body that is wrong, or empty
  int retry_s;        // when to try again; 0: not at all, or at any time
};

/// {"error": {"message", "type", "param", "code"}}
std::string error_json(const ApiError& error);

}  // namespace baton::serve
