// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "agents/mcp/connection.h"

namespace message_test {

using namespace baton;

TEST_CASE("messages are results, errors, requests and notifications") {
  using Kind = RpcMessage::Kind;
  CHECK(read_rpc(R"({"id":3,"result":{}})").id == 3);
  CHECK(read_rpc(R"({"id":"3","result":{}})").id == std::nullopt);
  CHECK(read_rpc(R"({"id":3,"error":{"code":-5,"message":"no\u0007\nway"}})").error == "no  way (code -5)");
  CHECK(read_rpc(R"({"id":3,"error":7})").error == "an error without a message");
  const RpcMessage request = read_rpc(R"({"id":"a\"b","method":"ping"})");
  CHECK(request.kind == Kind::request);
  CHECK(rpc_answer(request) == R"({"jsonrpc":"2.0","id":"a\"b","result":{}})");
  CHECK(rpc_answer(read_rpc(R"({"id":1,"method":"roots/list"})")) ==
        R"({"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"not supported by this client"}})");
  CHECK(read_rpc(R"({"method":"notifications/x"})").kind == Kind::notification);
  for (const char* text : {"", "7", "[]", "{}", R"({"method":7})", R"({"id":1})", "{\"result\""})
    CHECK_THROWS_AS(read_rpc(text), std::runtime_error);
  CHECK_THROWS_AS(read_rpc(std::string(100'000, '[')), std::runtime_error);
}

}  // namespace message_test
