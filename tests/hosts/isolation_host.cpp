// SPDX-License-Identifier: Apache-2.0
// A host that asks for the layers of the sandbox, and whether `baton doctor` says the same of them:
//   isolation_host RUNNER [without-landlock]
#include <baton/system.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace {

/// By layer: the verdict and the text.
using Layers = std::map<std::string, std::pair<std::string, std::string>>;

std::string output_of(const std::string& command) {
  std::string text;
  FILE* stream = popen(command.c_str(), "r");
  if (stream == nullptr) return text;
  char buffer[4096];
  for (std::size_t bytes = 0; (bytes = fread(buffer, 1, sizeof(buffer), stream)) > 0;) text.append(buffer, bytes);
  pclose(stream);
  return text;
}

/// From here on, this process and those that it starts are on a kernel without Landlock.
bool lose_landlock() {
  const sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_landlock_create_ruleset, 0, 1),
                                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(filter), const_cast<sock_filter*>(filter)};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool without_landlock = argc == 3 && std::string(argv[2]) == "without-landlock";
  if (argc != 2 && !without_landlock) return 2;
  if (without_landlock && !lose_landlock()) return 3;
  Layers expected, found;
  for (const auto& fact : baton::isolation()) expected[fact.layer] = {fact.in_force ? "ok" : "warn", fact.text};
  const auto lines = nlohmann::json::parse(output_of("'" + std::string(argv[1]) + "' doctor --json"));
  const std::string begin = "sandbox ";
  for (const auto& line : lines) {
    const auto check = line.at("check").get<std::string>();
    if (check.starts_with(begin))
      found[check.substr(begin.size())] = {line.at("verdict").get<std::string>(), line.at("text").get<std::string>()};
  }
  for (const auto& [name, layers] : {std::pair{"isolation", &expected}, {"doctor", &found}}) {
    for (const auto& [layer, said] : *layers)
      std::cout << name << ": " << layer << ": " << said.first << ": " << said.second << '\n';
  }
  if (without_landlock && expected["Landlock"].first != "warn") return 1;
  return !expected.empty() && expected == found ? 0 : 1;
}
