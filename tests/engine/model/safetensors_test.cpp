// SPDX-License-Identifier: Apache-2.0
#include "engine/model/safetensors.h"

#include <sys/stat.h>
#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <thread>

#include "engine/model/config.h"
#include "tests/engine/model/checkpoint.h"
#include "tests/support/golden.h"
#include "tests/support/own_cache.h"
#include "tests/support/thread_time.h"
#include "tests/support/tiny_model.h"

namespace safetensors_test {

using namespace baton;
using namespace baton::test;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

std::map<std::string, TensorInfo> parse(const std::string& file) {
  return parse_safetensors_header(as_bytes(file), file.size(), "f");
}

std::string problem(const std::string& file) {
  return error_of<ModelError>([&] { parse(file); });
}

/// A header of one tensor "a" and as many bytes of data.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets, std::size_t data) {
  return safetensors(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                     std::string(data, '\0'));
}

std::vector<float> values_of(const StoredWeight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.rows * weight.cols));
  dequantize(values, {weight.data.get(), static_cast<std::size_t>(weight.rows * row_bytes(weight.type, weight.cols))},
             weight.type);
  return values;
}

}  // namespace

TEST_CASE("a sound header") {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"none":{"dtype":"F16","shape":[0,7],"data_offsets":[16,16]},)"
      R"("ids":{"dtype":"I64","shape":[1],"data_offsets":[16,24]},"scalar":{"dtype":"U8","shape":[],"data_offsets":[24,25]}})";
  const std::string file = safetensors(header, std::string(25, '\0'));
  const auto tensors = parse(file);
  CHECK(safetensors_data_offset(as_bytes(file), file.size(), "f") == 8 + header.size());
  REQUIRE(tensors.size() == 5);
  CHECK(tensors.at("b").dtype == DType::bf16);
  CHECK(tensors.at("b").shape == std::vector<std::int64_t>{2, 3});
  CHECK(tensors.at("b").begin == 4);
  CHECK(tensors.at("b").end == 16);
  CHECK(tensors.at("ids").type == "I64");
  CHECK_FALSE(tensors.at("ids").dtype.has_value());
  CHECK(parse(safetensors("{}", "")).empty());
}

TEST_CASE("headers that lie are refused") {
  CHECK_THAT(problem(""), Equals("f: truncated: 0 bytes, a safetensors file has at least 8"));
  CHECK_THAT(problem("1234567"), Contains("truncated: 7 bytes"));
  CHECK_THAT(problem(std::string("\x10\0\0\0\0\0\0\0{}", 10)),
             Equals("f: truncated: a header of 16 bytes, but only 2 follow"));
  CHECK_THAT(problem(std::string(8, '\xff') + "{}"),
             Contains("a header of 18446744073709551615 bytes, at most 100000000"));
  CHECK_THAT(problem(safetensors("", "")), Contains("f: header: not JSON"));
  CHECK_THAT(problem(safetensors("{\"a\":", "")), Contains("f: header: not JSON: parse error at line 1"));
  CHECK_THAT(problem(safetensors("[]", "")), Equals("f: the header is a list of 0, expected an object"));
  CHECK_THAT(problem(safetensors(R"({"a":1})", "")), Equals("f: tensor \"a\": the whole is 1, expected an object"));
  CHECK_THAT(problem(safetensors(R"({"a":{"shape":[],"data_offsets":[0,0]}})", "")), Contains("\"dtype\" is missing"));
  CHECK_THAT(problem(safetensors(R"({"a":{"dtype":"F32","data_offsets":[0,0]}})", "")),
             Contains("\"shape\" is not a list"));
  CHECK_THAT(problem(safetensors(R"({"a":{"dtype":"F32","shape":[0]}})", "")),
             Contains("\"data_offsets\" is not a list"));

  CHECK_THAT(problem(one("F32", "[2,2]", "[0,12]", 12)),
             Equals("f: tensor \"a\": F32 [2, 2] takes 16 bytes, but its offsets span 12"));
  CHECK_THAT(problem(one("F4", "[3]", "[0,1]", 1)), Contains("F4 [3] takes 1 bytes"));
  CHECK_THAT(problem(one("F32", "[4]", "[0,16]", 12)),
             Contains("bytes [0, 16) of 12 bytes of data; is the file truncated?"));
  CHECK_THAT(problem(one("F32", "[4]", "[16,0]", 16)), Contains("bytes [16, 0)"));
  CHECK_THAT(problem(one("F32", "[-1]", "[0,4]", 4)), Contains("an extent is -1, expected a size"));
  CHECK_THAT(problem(one("F32", "[1.5]", "[0,4]", 4)), Contains("an extent is 1.5"));
  CHECK_THAT(problem(one("F32", "[1]", "[0,-4]", 4)), Contains("an offset is -4"));
  CHECK_THAT(problem(one("F32", "[1]", "[0,4,8]", 4)), Contains("\"data_offsets\" has 3 entries, expected 2"));
  CHECK_THAT(problem(one("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]", 4)), Contains("9 dimensions, at most 8"));
  // Products that leave 64 bits, also behind a zero.
  CHECK_THAT(problem(one("F32", "[4294967296,4294967296]", "[0,0]", 0)), Contains("is too large"));
  CHECK_THAT(problem(one("F32", "[0,4294967296,4294967296]", "[0,0]", 0)), Contains("is too large"));
  CHECK_THAT(problem(one("F32", "[18446744073709551615]", "[0,4]", 4)), Contains("is too large"));
  CHECK_THAT(problem(one("X99", "[4294967296,4294967296]", "[0,4]", 4)), Contains("is too large"));
}

TEST_CASE("headers that fuzzing found") {
  // A number that no double holds is another exception of the JSON library than a syntax error.
  CHECK_THAT(problem(safetensors(R"({"z":1e999})", "")), Contains("f: header: not JSON: number overflow"));
  // Nesting where a size is expected: as deep as the file is long, and as deep as is read.
  CHECK_THAT(problem(one("F32", "[1," + std::string(100000, '[') + "]", "[0,4]", 4)),
             Contains("nested at most 64 deep"));
  const std::string deep = std::string(60, '[') + std::string(60, ']');
  CHECK_THAT(problem(one("F32", "[9999999999999999," + deep + "]", "[0,4]", 4)), Contains("is too large"));
  CHECK_THAT(problem(one("F32", "[1," + deep + "]", "[0,4]", 4)), Contains("an extent is a list of 1"));
}

TEST_CASE("tensors fill the data without overlap, hole or rest") {
  const auto two = [](const std::string& a, const std::string& b, std::size_t data) {
    return safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":)" + a +
                           R"(},"b":{"dtype":"F32","shape":[2],"data_offsets":)" + b + "}}",
                       std::string(data, '\0'));
  };
  CHECK(problem(two("[8,16]", "[0,8]", 16)) == "");
  CHECK_THAT(problem(two("[0,8]", "[4,12]", 12)),
             Equals("f: tensor \"b\" begins at byte 4, expected 8: tensors overlap"));
  CHECK_THAT(problem(two("[0,8]", "[0,8]", 8)), Contains("tensors overlap"));
  CHECK_THAT(problem(two("[0,8]", "[12,20]", 20)),
             Contains("tensor \"b\" begins at byte 12, expected 8: tensors leave a hole"));
  CHECK_THAT(problem(two("[0,8]", "[8,16]", 20)), Equals("f: the tensors end at byte 16 of 20 bytes of data"));
}

TEST_CASE("messages do not hold names of any length") {
  const std::string entry = R"(":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  CHECK(parse(safetensors(R"({")" + std::string(1024, 'x') + entry, "1234")).size() == 1);
  CHECK_THAT(problem(safetensors(R"({")" + std::string(1025, 'x') + entry, "1234")),
             Equals("f: a name of 1025 bytes, expected at most 1024: \"" + std::string(64, 'x') + "...\""));
}

TEST_CASE("a name listed twice is refused") {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  CHECK_THAT(problem(safetensors("{" + a + "," + a + "}", "1234")), Equals("f: tensor \"a\" is listed twice"));
}

TEST_CASE("a header of many tensors is read in time in proportion to its size") {
  std::string header = "{";
  for (int i = 0; i < 80'000; ++i)
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  const double begin = thread_seconds();
  CHECK(parse(safetensors(header + "}", "")).size() == 80'000);
  CHECK(thread_seconds() - begin < 2.0 * slowdown());
}

TEST_CASE("a folder with one file") {
  const TempFolder folder;
  TensorFile file;
  file.add("m", {2, 3}, {1, 2, 3, 4, 5, 6});
  file.add("v", {3}, {7, 8, 9});
  folder.write("model.safetensors", file.bytes());
  const SafetensorsFolder files(folder.path());
  const std::string path = (folder.path() / "model.safetensors").string();

  CHECK(files.names() == std::vector<std::string>{"m", "v"});
  CHECK(files.contains("m"));
  CHECK_FALSE(files.contains("x"));
  CHECK(files.total_bytes() == 36);
  const StoredWeight matrix = files.weight("m", 2, 3), vector = files.weight("v", 1, 3);
  CHECK(values_of(matrix) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK((vector.rows == 1 && vector.cols == 3));
  CHECK(values_of(vector) == std::vector<float>{7, 8, 9});
  CHECK_THAT(error_of<ModelError>([&] { files.weight("m", 3, 2); }),
             Equals(path + ": tensor \"m\" has shape [2, 3], expected [3, 2]"));
  CHECK_THAT(error_of<ModelError>([&] { files.weight("v", 1, 4); }), Contains("has shape [3], expected [4]"));
  CHECK_THAT(error_of<ModelError>([&] { files.weight("x", 1, 1); }),
             Equals("tensor \"x\" is missing; searched " + path));
}

TEST_CASE("types are refused where they are asked for, and only there") {
  const TempFolder folder;
  folder.write("model.safetensors", safetensors(R"({"ids":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})", "1234"));
  const SafetensorsFolder files(folder.path());
  CHECK_THAT(error_of<ModelError>([&] { files.weight("ids", 1, 1); }),
             Contains("tensor \"ids\" is of type I32, expected BF16, F16 or F32"));
}

TEST_CASE("elements that the file does not align are read all the same") {
  const TempFolder folder;
  std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  while (header.size() % 4 != 1) header.push_back(' ');
  folder.write("model.safetensors", safetensors(header, std::string("\0\0\xc0\x3f", 4)));
  CHECK(values_of(SafetensorsFolder(folder.path()).weight("a", 1, 1)) == std::vector<float>{1.5f});
}

TEST_CASE("a file that is truncated after it was opened is an error with its place") {
  const TempFolder folder;
  TensorFile file;
  file.add("m", {2, 3}, {1, 2, 3, 4, 5, 6});
  folder.write("model.safetensors", file.bytes());
  const SafetensorsFolder files(folder.path());
  const std::size_t size = file.bytes().size();
  std::filesystem::resize_file(folder.path() / "model.safetensors", size - 20);
  CHECK_THAT(error_of<ModelError>([&] { files.weight("m", 2, 3); }),
             Contains("model.safetensors: byte " + std::to_string(size - 20) +
                      ": the file ends here, expected 20 bytes more"));
  std::filesystem::resize_file(folder.path() / "model.safetensors", 3);
  CHECK_THAT(error_of<ModelError>([&] { files.fingerprint("{}"); }), Contains("byte 3: the file ends here"));
}

TEST_CASE("shards are joined, and their index is checked") {
  const TempFolder folder;
  TensorFile first, second;
  first.add("a", {1, 2}, {1, 2});
  second.add("b", {1, 2}, {3, 4});
  folder.write("one.safetensors", first.bytes());
  folder.write("two.safetensors", second.bytes());
  const auto open = [&](const std::string& map) {
    folder.write("model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + map + "}");
    return SafetensorsFolder(folder.path());
  };
  const auto index_problem = [&](const std::string& map) { return error_of<ModelError>([&] { open(map); }); };

  const SafetensorsFolder files = open(R"({"a":"one.safetensors","b":"two.safetensors"})");
  CHECK(files.names() == std::vector<std::string>{"a", "b"});
  CHECK(values_of(files.weight("b", 1, 2))[1] == 4.0f);

  CHECK_THAT(index_problem(R"({"a":"one.safetensors","b":"gone.safetensors"})"),
             Equals((folder.path() / "gone.safetensors").string() + ": No such file or directory"));
  CHECK_THAT(index_problem(R"({"a":"two.safetensors"})"), Contains("tensor \"a\" is not in two.safetensors"));
  for (const char* escape :
       {"../one.safetensors", "/etc/passwd", "..", ".", "", "sub/one.safetensors", "a\\\\b", "a\\u0000b"})
    CHECK_THAT(index_problem(R"({"a":")" + std::string(escape) + "\"}"),
               Contains("expected the name of a file in the same folder"));
  CHECK_THAT(index_problem(R"({"a":3})"), Contains("tensor \"a\" is in 3"));
  CHECK_THAT(index_problem("{}"), Contains("\"weight_map\" is an object, expected an object of tensor names"));
  folder.write("two.safetensors", first.bytes());
  CHECK_THAT(index_problem(R"({"a":"one.safetensors","b":"two.safetensors"})"), Contains("\"b\" is not in two"));
  TensorFile both;
  both.add("a", {1, 2}, {1, 2});
  both.add("b", {1, 2}, {3, 4});
  folder.write("two.safetensors", both.bytes());
  CHECK_THAT(index_problem(R"({"a":"one.safetensors","b":"two.safetensors"})"),
             Contains("tensor \"a\" is in one.safetensors and in two.safetensors"));
}

TEST_CASE("folders and files that are not there") {
  const TempFolder folder;
  CHECK_THAT(error_of<ModelError>([&] { SafetensorsFolder files(folder.path()); }),
             Equals(folder.path().string() + ": neither model.safetensors nor model.safetensors.index.json is there"));
  folder.write("pytorch_model.bin", "x");
  CHECK_THAT(error_of<ModelError>([&] { SafetensorsFolder files(folder.path()); }),
             Contains("convert pytorch_model.bin"));
  folder.write("model.safetensors", "");
  CHECK_THAT(error_of<ModelError>([&] { SafetensorsFolder files(folder.path()); }), Contains("truncated: 0 bytes"));
  std::filesystem::remove(folder.path() / "model.safetensors");
  std::filesystem::create_directory(folder.path() / "model.safetensors");
  CHECK_THAT(error_of<ModelError>([&] { SafetensorsFolder files(folder.path()); }), Contains("not a regular file"));
#ifndef _WIN32
  std::filesystem::remove(folder.path() / "model.safetensors");
  REQUIRE(::mkfifo((folder.path() / "model.safetensors").c_str(), 0600) == 0);  // must not wait for a writer
  CHECK_THAT(error_of<ModelError>([&] { SafetensorsFolder files(folder.path()); }), Contains("not a regular file"));
#endif
}

TEST_CASE("the fingerprint knows the configuration, the header and every byte of the data") {
  const auto fingerprint = [](std::size_t changed, const std::string& name, const std::string& config) {
    const TempFolder folder;
    TensorFile file;
    std::vector<float> values(200000, 1.0f);
    if (changed < values.size()) values[changed] = 2.0f;
    file.add(name, {200000}, values);
    folder.write("model.safetensors", file.bytes());
    return SafetensorsFolder(folder.path()).fingerprint(config);
  };
  constexpr std::size_t kNone = 200000;
  const std::string print = fingerprint(kNone, "a", "{}");
  CHECK(print.size() == 32);
  CHECK(print.find_first_not_of("0123456789abcdef") == print.npos);
  CHECK(fingerprint(kNone, "a", "{}") == print);
  CHECK(fingerprint(kNone, "b", "{}") != print);
  CHECK(fingerprint(kNone, "a", "{ }") != print);
  for (const std::size_t at : {0u, 1u, 1500u, 77777u, 150001u, 199999u}) CHECK(fingerprint(at, "a", "{}") != print);
}

TEST_CASE("the hash of a large file is kept until the file changes") {
  const OwnCache cache;
  const TempFolder folder;
  TensorFile file;
  const std::vector<float> values(std::size_t{9} << 20, 1.0f);
  file.add("a", {static_cast<std::int64_t>(values.size())}, values);
  std::string bytes = file.bytes();
  folder.write("model.safetensors", bytes);
  const auto print = [&] { return SafetensorsFolder(folder.path()).fingerprint("{}"); };
  const std::string first = print();
  const auto entries = [&] {
    std::vector<std::filesystem::path> found;
    std::error_code none;
    for (const auto& one : std::filesystem::recursive_directory_iterator(cache.path(), none))
      if (one.path().extension() == ".json") found.push_back(one.path());
    return found;
  };
  CHECK(entries().empty());  // the file is too young: another change might get the same time
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  CHECK(print() == first);
  REQUIRE(entries().size() == 1);

  nlohmann::json entry = nlohmann::json::parse(test::read_file(entries().front()));
  entry["hash"] = std::string(32, '0');
  std::ofstream(entries().front()) << entry.dump();
  CHECK(print() != first);  // what is kept is used
  std::ofstream(entries().front()) << "{";
  CHECK(print() == first);  // unless it is broken

  bytes[bytes.size() / 2] ^= 1;
  folder.write("model.safetensors", bytes);
  CHECK(print() != first);
  std::stop_source stop;
  stop.request_stop();
  CHECK(SafetensorsFolder(folder.path()).fingerprint("{}", stop.get_token()).empty());
}

TEST_CASE("golden checkpoints open, single and sharded") {
  const SafetensorsFolder sharded(golden_folder() / "mistral");
  CHECK(sharded.contains("model.embed_tokens.weight"));
  CHECK(sharded.contains("lm_head.weight"));
  CHECK(sharded.weight("model.layers.2.mlp.down_proj.weight", 64, 112).type == BlockType::bf16);
  CHECK(SafetensorsFolder(golden_folder() / "qwen2_window").weight("model.norm.weight", 1, 64).type == BlockType::f16);
  CHECK(SafetensorsFolder(golden_folder() / "llama_linear").weight("model.norm.weight", 1, 48).type == BlockType::f32);
}

}  // namespace safetensors_test
