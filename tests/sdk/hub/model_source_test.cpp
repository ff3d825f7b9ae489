// SPDX-License-Identifier: Apache-2.0
#include "sdk/hub/model_source.h"

#include <catch2/catch.hpp>

#include "engine/base/errors.h"

namespace model_source_test {

namespace {

using baton::HubModel;
using baton::UrlModel;

HubModel hub(const std::string& text) { return std::get<HubModel>(baton::parse_model_source(text).value()); }

}  // namespace

TEST_CASE("names of published models are read in every form") {
  struct Case {
    const char *text, *repository, *revision, *choice;
  };
  for (const Case& c :
       {Case{"hf:org/name", "org/name", "main", ""}, Case{"hf:org/name:Q4_K_M", "org/name", "main", "Q4_K_M"},
        Case{"hf:o/n@v1.0:a/b.gguf", "o/n", "v1.0", "a/b.gguf"}, Case{"hf://o/n@refs/pr/1", "o/n", "refs/pr/1", ""},
        Case{"https://huggingface.co/o/n", "o/n", "main", ""},
        Case{"https://huggingface.co/o/n/resolve/v2/x%20y.gguf?download=true", "o/n", "v2", "x y.gguf"},
        Case{"https://hf.co/o/n/tree/dev", "o/n", "dev", ""}}) {
    INFO(c.text);
    const HubModel model = hub(c.text);
    CHECK(model.repository == c.repository);
    CHECK(model.revision == c.revision);
    CHECK(model.choice == c.choice);
    CHECK(hub("hf:" + model.text()).text() == model.text());
  }
  const auto url =
      std::get<UrlModel>(baton::parse_model_source("https://u:p@host/a/m-00002-of-00002.gguf?key=1").value());
  CHECK(url.name == "m-00002-of-00002.gguf");
  CHECK(url.sibling("m 1.gguf") == "https://u:p@host/a/m%201.gguf?key=1");
  CHECK(baton::shown_url(url.url) == "https://host/a/m-00002-of-00002.gguf");
  for (const char* path : {"nano", "./x.gguf", "/models/hf", "", "HF:o/n", "models/hf:x"})
    CHECK_FALSE(baton::parse_model_source(path));
}

TEST_CASE("names that are none of a published model are refused") {
  for (const char* text : {"hf:",
                           "hf:name",
                           "hf:/o/n",
                           "hf:o/n/x",
                           "hf:o/..",
                           "hf:-o/n",
                           "hf:o/n--x",
                           "hf:o/n:",
                           "hf:o/n@",
                           "hf:o/n@../x",
                           "hf:o/n:/etc/x",
                           "hf:o/n:a/../b",
                           "hf:o/n:a\nb",
                           "hf:o/n:a\\..\\b",
                           "hf:o/n:C:b",
                           "hf:o/n@..\\x",
                           "https://huggingface.co/o/n/resolve/C%3A/x.gguf",
                           "https://host/",
                           "https://host/x.bin",
                           "https:x.gguf",
                           "file:x.gguf",
                           "https://host/a b.gguf",
                           "https://host/a%2F..%2Fb.gguf",
                           "https://host/a%5C..%5Cb.gguf",
                           "https://host/C%3Ab.gguf",
                           "https://host/%00.gguf"}) {
    INFO(text);
    CHECK_THROWS_AS(baton::parse_model_source(text), baton::ModelError);
  }
  CHECK_THROWS_AS(baton::parse_model_source("hf:" + std::string(100, 'o') + "/n"), baton::ModelError);
  CHECK_THROWS_AS(baton::parse_model_source("https://host/" + std::string(9000, 'x') + ".gguf"), baton::ModelError);
}

TEST_CASE("percent signs are decoded once") {
  CHECK(baton::percent_decoded("a%20b%2f%zz%4") == "a b/%zz%4");
  CHECK(baton::percent_encoded("a b/\xC3\xA9", true) == "a%20b/%C3%A9");
  CHECK(baton::percent_encoded("refs/pr/1", false) == "refs%2Fpr%2F1");
}

}  // namespace model_source_test
