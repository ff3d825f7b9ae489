# SPDX-License-Identifier: Apache-2.0
# GCC of MinGW-w64 for Windows on x86-64, the libraries that libraries.sh built, and Wine to run what comes out
# (./dev windows). Everything is linked statically: a program needs Windows alone.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)

get_filename_component(BATON_MINGW_ROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/windows-libraries/root ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${BATON_MINGW_ROOT} /usr/x86_64-w64-mingw32)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${BATON_MINGW_ROOT}/lib/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} "")

# Windows 10, whose functions are declared. Stacks of Windows are aligned to 16 bytes, and GCC believes its wider
# variables to be aligned there (its bug 54412): the assembler makes all vector moves unaligned ones, which are as fast.
set(CMAKE_C_FLAGS_INIT "-D_WIN32_WINNT=0x0A00")
set(CMAKE_CXX_FLAGS_INIT "-D_WIN32_WINNT=0x0A00 -Wa,-muse-unaligned-vector-move")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-static")

set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_CURRENT_LIST_DIR}/run.sh)
