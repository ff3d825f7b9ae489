// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "engine/base/system/process.h"
#include "tests/support/temp_folder.h"

namespace machine_test {

TEST_CASE("what is available of this machine's memory is a part of it") {
  const baton::MachineMemory here = baton::machine_memory();
  CHECK(here.available_bytes > 0);
  CHECK(here.available_bytes <= here.total_bytes);
}

#ifdef __linux__  // which has files that say it
namespace {

using baton::machine_memory;
using baton::MachineMemory;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
const std::string kMeminfo = "MemTotal:       16777216 kB\nMemFree:          100000 kB\nMemAvailable:    8388608 kB\n";

using Files = std::map<std::string, std::string>;

void write(const baton::test::TempFolder& root, const Files& files) {
  for (const auto& [name, text] : files) {
    std::filesystem::create_directories((root.path() / name).parent_path());
    root.write(name, text);
  }
}

/// Available and total MiB on a machine whose files are these.
std::pair<std::int64_t, std::int64_t> mebibytes(const Files& files) {
  const baton::test::TempFolder root;
  write(root, files);
  const MachineMemory memory = machine_memory(root.path());
  return {memory.available_bytes / kMiB, memory.total_bytes / kMiB};
}

/// Usable cores of this machine, if its files were these.
int cores(const Files& files) {
  const baton::test::TempFolder root;
  write(root, files);
  return baton::usable_cores(root.path());
}

using Pair = std::pair<std::int64_t, std::int64_t>;

}  // namespace

TEST_CASE("memory without a control group is the machine's") {
  CHECK(mebibytes({{"proc/meminfo", kMeminfo}}) == Pair(8192, 16384));
  CHECK(mebibytes({{"proc/meminfo", kMeminfo},
                   {"proc/self/cgroup", "0::/user.slice\n"},
                   {"sys/fs/cgroup/user.slice/memory.max", "max\n"},
                   {"sys/fs/cgroup/user.slice/memory.current", "1048576\n"}}) == Pair(8192, 16384));
  CHECK(mebibytes({}) == Pair(0, 0));
}

TEST_CASE("a container of version 2 has what its limit leaves, with files that can be dropped") {
  Files files = {{"proc/meminfo", kMeminfo},
                 {"proc/self/cgroup", "0::/\n"},
                 {"sys/fs/cgroup/memory.max", "2147483648\n"},
                 {"sys/fs/cgroup/memory.current", "1610612736\n"}};
  CHECK(mebibytes(files) == Pair(512, 2048));
  files["sys/fs/cgroup/memory.stat"] = "anon 1073741824\nactive_file 1\ninactive_file 268435456\n";
  CHECK(mebibytes(files) == Pair(768, 2048));
  files["sys/fs/cgroup/memory.high"] = "1610612736\n";
  CHECK(mebibytes(files) == Pair(256, 1536));
  files["sys/fs/cgroup/memory.current"] = "3221225472\n";  // more than it may: 1 byte, which is known, and not 0
  CHECK(mebibytes(files) == Pair(0, 1536));
  files.erase("proc/meminfo");
  files["sys/fs/cgroup/memory.current"] = "268435456\n";
  CHECK(mebibytes(files) == Pair(1536, 1536));
}

TEST_CASE("the groups around a group of version 2 limit it too") {
  const std::string group = "sys/fs/cgroup/system.slice/job.service/";
  CHECK(mebibytes({{"proc/meminfo", kMeminfo},
                   {"proc/self/cgroup", "1:name=systemd:/x\n0::/system.slice/job.service\n"},
                   {group + "memory.max", "2147483648\n"},
                   {group + "memory.current", "1073741824\n"},
                   {"sys/fs/cgroup/system.slice/memory.max", "4294967296\n"},
                   {"sys/fs/cgroup/system.slice/memory.current", "4026531840\n"}}) == Pair(256, 2048));
}

TEST_CASE("a container of version 1 finds its group where it is mounted") {
  const Files files = {{"proc/meminfo", kMeminfo},
                       {"proc/self/cgroup", "12:cpu,cpuacct:/docker/abc\n5:hugetlb,memory:/docker/abc\n"},
                       {"sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"},
                       {"sys/fs/cgroup/memory/memory.usage_in_bytes", "536870912\n"},
                       {"sys/fs/cgroup/memory/memory.stat", "inactive_file 5\ntotal_inactive_file 134217728\n"}};
  CHECK(mebibytes(files) == Pair(640, 1024));
  auto none = files;
  none["sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n";
  CHECK(mebibytes(none) == Pair(8192, 16384));
}

TEST_CASE("as many cores are usable as the processor time of a container's group lets run all the time") {
  const int all = cores({});
  CHECK(all >= 1);
  const auto in_group = [](const std::string& quota) {
    return cores({{"proc/self/cgroup", "0::/\n"}, {"sys/fs/cgroup/cpu.max", quota}});
  };
  CHECK(in_group("max 100000\n") == all);
  CHECK(in_group("150000 100000\n") == 1);
  CHECK(in_group("20000 100000\n") == 1);
  CHECK(in_group("900000000000 100000\n") == all);
  CHECK(in_group("250000 100000\n") == std::min(all, 2));
  CHECK(in_group("100000\n") == all);
  CHECK(in_group("100000 0\n") == all);
  CHECK(cores({{"proc/self/cgroup", "0::/kubepods/pod\n"},
               {"sys/fs/cgroup/kubepods/pod/cpu.max", "max 100000\n"},
               {"sys/fs/cgroup/kubepods/cpu.max", "100000 100000\n"}}) == 1);
}

TEST_CASE("the processor time of a group of version 1 is found where the group is mounted") {
  const auto in_group = [](const std::string& time) {
    return cores({{"proc/self/cgroup", "12:cpu,cpuacct:/docker/abc\n"},
                  {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", time},
                  {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  };
  CHECK(in_group("100000\n") == 1);
  CHECK(in_group("-1\n") == cores({}));
}
#endif

}  // namespace machine_test
