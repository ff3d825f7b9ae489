# SPDX-License-Identifier: Apache-2.0
# BATON_STATIC: programs that need nothing but the C library of the machine they run on, with the library for exceptions
# that it comes with, libgcc_s (with CUDA the driver and cuBLASLt are found at run time). What ./dev gpu --pack builds. BATON_LIBC: a folder with an older C library to link
# with, so that they run on machines that have that one (docs/decisions/interfaces.md).

add_link_options(-static-libstdc++)
set(CMAKE_SKIP_RPATH ON)
find_library(BATON_SECCOMP_A libseccomp.a REQUIRED)
set_property(TARGET PkgConfig::SECCOMP PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_SECCOMP_A})

if(BATON_LIBC)
  # -B, -L: before the folders that the compiler finds by its own place.
  set(libraries lib/${CMAKE_LIBRARY_ARCHITECTURE})
  add_link_options(--sysroot=${BATON_LIBC} -B${BATON_LIBC}/usr/${libraries} -L${BATON_LIBC}/${libraries})
  # Before 2.34 these were libraries of their own.
  set(CMAKE_C_STANDARD_LIBRARIES "-lpthread -ldl -lrt")
  set(CMAKE_CXX_STANDARD_LIBRARIES "-lpthread -ldl -lrt")
  add_library(baton_glibc STATIC cmake/static/glibc.cpp)
  # All of it: the compiler's own libraries, which come last on the command line, need it.
  target_link_libraries(baton_flags INTERFACE $<LINK_LIBRARY:WHOLE_ARCHIVE,baton_glibc>)
endif()
