// SPDX-License-Identifier: Apache-2.0
// HostLocale: the locale of a host that writes numbers with a comma, names days in its language and has other rules for
// upper and lower case, as programs of Qt and GTK set the user's.
#pragma once

#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <locale>
#include <stdexcept>
#include <string>
#include <system_error>

namespace baton::test {

/// Sets German in C++ and Turkish in C for the whole process until it is destroyed. Where Debian's package `locales` is
/// missing it sets nothing.
class HostLocale {
 public:
  HostLocale() {
    std::filesystem::create_directories(folder_);
    for (const std::string language : {"de_DE", "tr_TR"}) {
      const std::string made = (folder_ / (language + ".UTF-8")).string();
      if (std::system(("localedef -i " + language + " -f UTF-8 " + made + " 2>/dev/null").c_str()) != 0) return;
    }
    ::setenv("LOCPATH", folder_.c_str(), 1);
    std::locale::global(std::locale("de_DE.UTF-8"));
    if (std::setlocale(LC_ALL, "tr_TR.UTF-8") == nullptr) throw std::runtime_error("the locale cannot be set");
    is_set_ = true;
  }
  ~HostLocale() {
    std::locale::global(std::locale::classic());
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  HostLocale(const HostLocale&) = delete;
  HostLocale& operator=(const HostLocale&) = delete;

  bool is_set() const { return is_set_; }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("baton-locale-" + std::to_string(::getpid()));
  bool is_set_ = false;
};

}  // namespace baton::test
