// SPDX-License-Identifier: Apache-2.0
// GGUF files, sound and hostile.
#include "engine/model/gguf.h"

#include <catch2/catch.hpp>
#include <limits>

#include "engine/base/errors.h"
#include "tests/engine/model/checkpoint.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/thread_time.h"

namespace gguf_test {

using namespace baton;
using namespace baton::test;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

GgufContents parse(const std::string& file) {
  std::optional<GgufContents> contents = parse_gguf(as_bytes(file), file.size(), "x.gguf");
  REQUIRE(contents.has_value());  // the whole file is there
  return std::move(*contents);
}

std::string problem(const std::string& file) {
  return error_of<ModelError>([&] { parse(file); });
}

/// Magic, version 3, and the two counts.
std::string head(std::uint64_t tensors, std::uint64_t pairs) {
  return "GGUF" + raw(std::uint32_t{3}) + raw(tensors) + raw(pairs);
}

std::string pair(const std::string& key, std::uint32_t type, const std::string& value) {
  return gguf_text(key) + raw(type) + value;
}

std::string entry(const std::string& name, const std::vector<std::uint64_t>& extents, std::uint32_t type,
                  std::uint64_t offset) {
  std::string bytes = gguf_text(name) + raw(static_cast<std::uint32_t>(extents.size()));
  for (const std::uint64_t extent : extents) bytes += raw(extent);
  return bytes + raw(type) + raw(offset);
}

/// A file of one tensor of that description, with 64 bytes of data.
std::string one_tensor(const std::string& description) {
  std::string file = head(1, 0) + description;
  file.resize((file.size() + 31) / 32 * 32);
  return file + std::string(64, '\0');
}

constexpr std::uint32_t kF32 = 0, kQ8_0 = 8;

}  // namespace

TEST_CASE("metadata and tensors of a sound file are found") {
  GgufWriter writer;
  writer.number("a.count", 7);
  writer.real("a.scale", 0.5f);
  writer.flag("a.flag", true);
  writer.text("a.name", "llama");
  writer.texts("a.list", {"x", "", "yz"});
  writer.integers("a.ids", {-1, 5});
  writer.reals("a.scores", {1.5f, -2.0f});
  writer.add("a.small", GgufType::i8, raw(std::int8_t{-3}));
  writer.add("a.large", GgufType::u64, raw(std::numeric_limits<std::uint64_t>::max()));
  writer.tensor("v", {3}, BlockType::f32, raw(1.0f) + raw(2.0f) + raw(3.0f));
  writer.tensor("m", {2, 32}, BlockType::q8_0, std::string(68, '\1'));
  for (const std::uint32_t version : {2u, 3u}) {
    const std::string file = writer.bytes(version);
    const GgufContents contents = parse(file);
    CHECK(contents.version == version);
    CHECK(contents.alignment == 32);
    const GgufMetadata& metadata = contents.metadata;
    CHECK(metadata.integer("a.count", 0, 10) == 7);
    CHECK(metadata.integer("a.small", -10, 10) == -3);
    CHECK(metadata.number("a.scale", 0, 1) == 0.5);
    CHECK(metadata.flag_or("a.flag", false));
    CHECK(metadata.text("a.name") == "llama");
    CHECK(metadata.texts("a.list") == std::vector<std::string_view>{"x", "", "yz"});
    CHECK(metadata.integers("a.ids") == std::vector<std::int64_t>{-1, 5});
    CHECK(metadata.numbers("a.scores") == std::vector<float>{1.5f, -2.0f});
    CHECK(metadata.integer_or("not.there", 4, 0, 9) == 4);
    CHECK(metadata.keys().size() == 9);
    REQUIRE(contents.tensors.size() == 2);
    const GgufTensor& matrix = contents.tensors.at("m");
    CHECK(matrix.type == BlockType::q8_0);
    CHECK(matrix.shape == std::vector<std::int64_t>{2, 32});
    CHECK(matrix.bytes == 68);
    CHECK(matrix.begin == contents.data_offset + 32);
  }
}

TEST_CASE("a value of another type or range is refused with its place and what was expected") {
  GgufWriter writer;
  writer.number("n", 7);
  writer.text("t", "seven");
  writer.real("nan", std::numeric_limits<float>::quiet_NaN());
  writer.add("huge", GgufType::u64, raw(std::numeric_limits<std::uint64_t>::max()));
  writer.integers("list", {1, 2});
  const std::string file = writer.bytes();
  const GgufMetadata metadata = parse(file).metadata;
  const auto of = [&](const auto& read) { return error_of<ModelError>([&] { read(); }); };
  CHECK_THAT(of([&] { (void)metadata.integer("n", 8, 9); }),
             Equals("x.gguf: byte 37: key \"n\" is 7, expected an integer from 8 to 9"));
  CHECK_THAT(of([&] { (void)metadata.integer("t", 0, 9); }), Contains("key \"t\" is \"seven\", expected an integer"));
  CHECK_THAT(of([&] { (void)metadata.number("nan", 0, 9); }), Contains("key \"nan\" is nan, expected a number"));
  CHECK_THAT(of([&] { (void)metadata.integer("huge", 0, 9); }), Contains("expected an integer from 0 to 9"));
  CHECK_THAT(of([&] { (void)metadata.text("n"); }), Contains("key \"n\" is 7, expected a text"));
  CHECK_THAT(of([&] { (void)metadata.texts("list"); }), Contains("is an array of 2, expected an array of texts"));
  CHECK_THAT(of([&] { (void)metadata.integers("n"); }), Contains("expected an array of integers"));
  CHECK_THAT(of([&] { (void)metadata.flag_or("n", false); }), Contains("expected a truth value"));
  CHECK_THAT(of([&] { (void)metadata.text("gone"); }), Equals("x.gguf: key \"gone\" is missing, expected a text"));
}

TEST_CASE("what is not a GGUF file of a known version is refused") {
  CHECK_THAT(problem(""), Contains("x.gguf: byte 0: expected a GGUF file"));
  CHECK_THAT(problem("GGML" + std::string(60, '\0')), Contains("byte 0: expected a GGUF file"));
  CHECK_THAT(problem("GGUF"), Contains("byte 4: the version takes 4 bytes, but only 0 follow"));
  for (const std::uint32_t version : {0u, 1u, 4u, 0xffffffffu})
    CHECK_THAT(problem("GGUF" + raw(version) + std::string(16, '\0')),
               Contains("byte 4: GGUF version " + std::to_string(version) + ", expected 2 or 3"));
  CHECK_THAT(problem("GGUF" + raw(std::uint32_t{0x03000000}) + std::string(16, '\0')), Contains("big-endian"));
}

TEST_CASE("counts and lengths that lie are refused before any memory is asked for") {
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max(), half = std::uint64_t{1} << 63;
  for (const std::uint64_t count : {huge, half, std::uint64_t{1}}) {
    CHECK_THAT(problem(head(count, 0)), Contains("byte 8: the number of tensors is " + std::to_string(count)));
    CHECK_THAT(problem(head(0, count)), Contains("byte 16: the number of metadata pairs is " + std::to_string(count)));
    const std::string padding(32, '\0');
    CHECK_THAT(problem(head(0, 1) + raw(count + 40) + padding), Contains("byte 24: a key has a length of"));
    CHECK_THAT(problem(head(0, 1) + pair("k", 8, raw(count + 40) + padding)),
               Contains("byte 37: key \"k\" has a length of"));
    const std::string array = raw(std::uint32_t{6}) + raw(count + 40) + padding;
    CHECK_THAT(problem(head(0, 1) + pair("k", 9, array)), Contains("byte 41: key \"k\": the number of its elements"));
    const std::string texts = raw(std::uint32_t{8}) + raw(std::uint64_t{2}) + raw(count + 40) + padding;
    CHECK_THAT(problem(head(0, 1) + pair("k", 9, texts)), Contains("byte 49: key \"k\" has a length of"));
  }
  CHECK_THAT(problem(head(0, 1) + raw(std::uint64_t{0}) + std::string(32, '\0')), Contains("has 0 bytes, expected 1"));
}

TEST_CASE("types that do not exist, deep arrays and truth values beside 0 and 1 are refused") {
  CHECK_THAT(problem(head(0, 1) + pair("k", 13, "12345678")), Contains("byte 33: key \"k\": its type is 13"));
  CHECK_THAT(problem(head(0, 1) + pair("k", 7, "\2")), Contains("byte 37: key \"k\" is 2, expected 0 or 1"));
  std::string nested;
  for (int depth = 0; depth < 100; ++depth) nested += raw(std::uint32_t{9}) + raw(std::uint64_t{1});
  CHECK_THAT(problem(head(0, 1) + pair("k", 9, nested)), Contains("deeper than 4"));
  const std::string twice = pair("k", 0, "1") + pair("k", 0, "2");
  CHECK_THAT(problem(head(0, 2) + twice), Contains("byte 38: key \"k\" is there twice"));
}

TEST_CASE("arrays in arrays are read in time in proportion to their bytes, however long their key is") {
  constexpr std::uint64_t kArrays = 500'000;
  std::string nested = raw(std::uint32_t{9}) + raw(kArrays);
  for (std::uint64_t i = 0; i < kArrays; ++i) nested += raw(std::uint32_t{0}) + raw(std::uint64_t{0});
  const std::string file = head(0, 1) + pair(std::string(65'535, 'k'), 9, nested);
  const double begin = thread_seconds();
  CHECK(parse(file).metadata.keys().size() == 1);
  CHECK(thread_seconds() - begin < 0.3 * slowdown());
}

TEST_CASE("errors show the beginning of a long name") {
  const std::string name(65'535, 'k');
  const std::string of_key = problem(head(0, 1) + pair(name, 7, "\2"));
  CHECK_THAT(of_key, Contains("byte 65571: key \"kkkk") && Contains("kk... is 2, expected 0 or 1"));
  CHECK(of_key.size() < 200);
  const std::string of_tensor = problem(head(1, 0) + entry(name, {}, 0, 0));
  CHECK_THAT(of_tensor, Contains("tensor \"kkkk") && Contains("kk... has 0 dimensions, expected 1 to 4"));
  CHECK(of_tensor.size() < 200);
}

TEST_CASE("an alignment that is no power of two is refused") {
  for (const std::uint32_t alignment : {0u, 3u, 48u, 1u << 21, 0x80000000u}) {
    INFO(alignment);
    CHECK_THAT(problem(head(0, 1) + pair("general.alignment", 4, raw(alignment))),
               Contains("byte 53: key \"general.alignment\" is " + std::to_string(alignment)));
  }
  CHECK(problem(head(0, 1) + pair("general.alignment", 4, raw(std::uint32_t{8}))).empty());
}

TEST_CASE("tensors must have a shape and lie within the file") {
  CHECK(problem(one_tensor(entry("t", {16}, kF32, 0))).empty());
  CHECK_THAT(problem(one_tensor(entry("t", {}, kF32, 0))), Contains("byte 33: tensor \"t\" has 0 dimensions"));
  CHECK_THAT(problem(one_tensor(entry("t", {1, 1, 1, 1, 1}, kF32, 0))), Contains("has 5 dimensions, expected 1 to 4"));
  CHECK_THAT(problem(one_tensor(entry("t", {0}, kF32, 0))), Contains("byte 37: tensor \"t\" has an extent of 0"));
  const std::uint64_t large = std::uint64_t{1} << 40;
  CHECK_THAT(problem(one_tensor(entry("t", {large, large}, kF32, 0))), Contains("byte 45: tensor \"t\" has an extent"));
  CHECK_THAT(problem(one_tensor(entry("t", {std::uint64_t{1} << 63}, kF32, 0))), Contains("has an extent of"));
  CHECK_THAT(problem(one_tensor(entry("t", {large}, kF32, 0))), Contains("of 64 bytes of data; truncated?"));
  CHECK_THAT(problem(one_tensor(entry("t", {17}, kF32, 0))), Contains("takes bytes 0 to 68 of 64 bytes of data"));
  CHECK_THAT(problem(one_tensor(entry("t", {16}, kF32, 32))), Contains("takes bytes 32 to 96 of 64 bytes of data"));
  CHECK_THAT(problem(one_tensor(entry("t", {1}, kF32, 96))), Contains("begins at 96 of 64 bytes of data"));
  CHECK_THAT(problem(one_tensor(entry("t", {1}, kF32, 4))), Contains("byte 49: tensor \"t\" begins at 4, expected a"));
  CHECK_THAT(problem(one_tensor(entry("t", {33}, kQ8_0, 0))), Contains("rows of 33 values, expected a multiple of 32"));
}

TEST_CASE("tensors that share bytes or a name are refused, a type of the future is not") {
  std::string file = head(2, 0) + entry("a", {16}, kF32, 0) + entry("b", {1}, kF32, 32);
  file.resize((file.size() + 31) / 32 * 32 + 64);
  CHECK_THAT(problem(file), Contains("tensor \"b\" begins at 32, expected 64 or more: it overlaps tensor \"a\""));
  file = head(2, 0) + entry("a", {8}, kF32, 0) + entry("a", {8}, kF32, 32);
  file.resize((file.size() + 31) / 32 * 32 + 64);
  CHECK_THAT(problem(file), Contains("tensor \"a\" is listed twice"));

  const std::string future = one_tensor(entry("t", {17}, 99, 0));
  const GgufContents contents = parse(future);
  CHECK_FALSE(contents.tensors.at("t").type.has_value());
  CHECK(contents.tensors.at("t").bytes == 0);
  CHECK(gguf_type_name(99) == "number 99");
  CHECK(gguf_type_name(16) == "IQ2_XXS");
  CHECK(gguf_type_name(12) == "Q4_K");
}

TEST_CASE("a file cut anywhere is refused, or is whole as far as it goes") {
  GgufWriter writer;
  writer.text("name", "x");
  writer.integers("list", {1, 2, 3});
  writer.tensor("m", {2, 32}, BlockType::q8_0, std::string(68, '\1'));
  const std::string file = writer.bytes();
  const std::size_t data = parse(file).data_offset;
  for (std::size_t size = 0; size < data + 68; ++size) {
    INFO(size);
    CHECK_FALSE(problem(file.substr(0, size)).empty());
  }
  CHECK(problem(file.substr(0, data + 68)).empty());
}

TEST_CASE("the tables of a file are parsed from its beginning, as soon as that holds them") {
  GgufWriter writer;
  writer.text("a.name", "llama");
  writer.tensor("m", {2, 32}, BlockType::q8_0, std::string(68, '\1'));
  const std::string file = writer.bytes();
  const GgufContents whole = parse(file);
  std::size_t enough = 0;
  for (std::size_t bytes = 0; bytes <= file.size(); ++bytes) {
    const auto contents = parse_gguf(as_bytes(file).first(bytes), file.size(), "x.gguf");
    if (contents && enough == 0) enough = bytes;
    CHECK(contents.has_value() == (enough != 0));
    if (contents) CHECK(contents->tensors.at("m").begin == whole.tensors.at("m").begin);
  }
  CHECK(enough > 0);
  CHECK(enough <= whole.data_offset);
}

TEST_CASE("tables may be longer than the first piece that is read, and a file truncated later is an error") {
  GgufWriter writer;
  writer.text("a.long", std::string(5 << 20, 'x'));
  writer.tensor("m", {2, 32}, BlockType::q8_0, std::string(68, '\1'));
  const TempFolder folder;
  const std::string bytes = writer.bytes();
  folder.write("m.gguf", bytes);
  const GgufFiles files(folder.path() / "m.gguf");
  CHECK(files.metadata().text("a.long").size() == 5 << 20);
  CHECK(files.read("m")[67] == std::byte{1});
  const std::uint64_t end = files.find("m")->begin + 60;
  std::filesystem::resize_file(folder.path() / "m.gguf", end);
  CHECK_THAT(error_of<ModelError>([&] { files.read("m"); }),
             Contains("m.gguf: byte " + std::to_string(end) + ": the file ends here, expected 8 bytes more"));
}

TEST_CASE("the parts of a split file are one model, and must fit together") {
  CHECK_FALSE(gguf_part_name("model.gguf").has_value());
  CHECK_FALSE(gguf_part_name("model-00003-of-00002.gguf").has_value());
  CHECK_FALSE(gguf_part_name("model-0000x-of-00002.gguf").has_value());
  const auto name = gguf_part_name("model-00002-of-00003.gguf");
  REQUIRE(name.has_value());
  CHECK(name->stem == "model");
  CHECK(name->number == 2);
  CHECK(name->of(3) == "model-00003-of-00003.gguf");

  const auto part = [](std::uint16_t number, std::uint16_t count, const std::string& tensor) {
    GgufWriter writer;
    writer.add("split.no", GgufType::u16, raw(number));
    writer.add("split.count", GgufType::u16, raw(count));
    writer.add("split.tensors.count", GgufType::i32, raw(std::int32_t{2}));
    writer.tensor(tensor, {1}, BlockType::f32, raw(static_cast<float>(number)));
    return writer.bytes();
  };
  const TempFolder folder;
  const std::filesystem::path second = folder.path() / "m-00002-of-00002.gguf";
  folder.write("m-00001-of-00002.gguf", part(0, 2, "a"));
  const auto failure = [&] { return error_of<ModelError>([&] { const GgufFiles files(second); }); };
  CHECK_THAT(failure(), Contains("m-00002-of-00002.gguf: No such file"));
  folder.write("m-00002-of-00002.gguf", part(1, 2, "b"));
  const GgufFiles files(second);
  CHECK(files.tensor_names() == std::vector<std::string>{"a", "b"});
  CHECK(files.paths().size() == 2);
  CHECK(files.find("b") != nullptr);
  CHECK(files.find("c") == nullptr);
  CHECK(files.fingerprint("").size() == 32);
  CHECK(files.fingerprint("") != files.fingerprint("{}"));
  folder.write("m-00002-of-00002.gguf", part(1, 2, "a"));
  CHECK_THAT(failure(), Contains("tensor \"a\" is in"));
  folder.write("m-00002-of-00002.gguf", part(0, 2, "b"));
  CHECK_THAT(failure(), Contains("key \"split.no\" is 0, expected 1"));
  folder.write("m-00002-of-00002.gguf", part(1, 3, "b"));
  CHECK_THAT(failure(), Contains("key \"split.count\" is 3, expected 2"));
}

}  // namespace gguf_test
