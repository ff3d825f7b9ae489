# SPDX-License-Identifier: Apache-2.0
# BATON_STATIC: programs that need nothing but the C library of the machine they run on, with the library for exceptions
# that it comes with, libgcc_s (with CUDA the driver and cuBLASLt are found at run time). What ./dev gpu --pack builds. BATON_LIBC: a folder with an older C library to link
# with, so that they run on machines that have that one (docs/decisions/0053-pack-libc.md).

add_link_options(-static-libstdc++)
set(CMAKE_SKIP_RPATH ON)
find_library(BATON_YAML_A libyaml-cpp.a REQUIRED)
find_library(BATON_PCRE2_A libpcre2-8.a REQUIRED)
find_library(BATON_UTF8PROC_A libutf8proc.a REQUIRED)
find_library(BATON_XXHASH_A libxxhash.a REQUIRED)
find_library(BATON_SECCOMP_A libseccomp.a REQUIRED)

set_property(TARGET PkgConfig::PCRE2 PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_PCRE2_A})
set_property(TARGET PkgConfig::UTF8PROC PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_UTF8PROC_A})
set_property(TARGET PkgConfig::XXHASH PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_XXHASH_A})
set_property(TARGET PkgConfig::SECCOMP PROPERTY INTERFACE_LINK_LIBRARIES ${BATON_SECCOMP_A})

# baton_replace(target archive): what links the imported library links the archive.
function(baton_replace target archive)
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  foreach(configuration IN LISTS configurations)
    set_property(TARGET ${target} PROPERTY IMPORTED_LOCATION_${configuration} ${archive})
  endforeach()
  set_property(TARGET ${target} PROPERTY IMPORTED_LOCATION ${archive})
endfunction()

# baton_compiled(target source): the same with an archive made of one source.
function(baton_compiled target source)
  get_filename_component(name ${source} NAME_WE)
  add_library(baton_static_${name} STATIC ${source})
  target_include_directories(baton_static_${name} PRIVATE $<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>)
  baton_replace(${target} ${CMAKE_CURRENT_BINARY_DIR}/libbaton_static_${name}.a)
  add_dependencies(${target} baton_static_${name})
endfunction()

baton_replace(yaml-cpp ${BATON_YAML_A})
baton_compiled(fmt::fmt cmake/static/fmt.cpp)
baton_compiled(hwy::hwy cmake/static/highway.cpp)

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
