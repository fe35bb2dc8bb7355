# Compiler, linker and cache choices shared by every target. Each falls back quietly to the plain tool where the fast one
# is missing, so that g++ 12/13 on a bare machine still builds.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
if(LOCKSTEP_SANITIZE)
  # Instrumented code takes the optimizer longest: without it half the compile time of -O1. The checks are the same or more
  # (an optimizer removes some of what is undefined), and stacks are easier to read.
  set(CMAKE_CXX_FLAGS_RELEASE "-O0 -g1" CACHE STRING "" FORCE)
else()
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1" CACHE STRING "" FORCE)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  # Objects are the same in every clone of the tree: paths below it are relative for ccache. Precompiled headers are
  # cacheable only when it ignores their time stamps.
  set(LOCKSTEP_CCACHE_SETTINGS CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_ABSSTDERR=1 CCACHE_PCH_EXTSUM=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${LOCKSTEP_CCACHE_SETTINGS} ${LOCKSTEP_CCACHE})
endif()
# lockstep_pch_cache(target): for a target that makes a precompiled header. That file holds absolute paths, so each clone
# makes its own; what is compiled with it is recognised by the sum that cmake/pch_sum leaves beside it.
function(lockstep_pch_cache target)
  if(LOCKSTEP_CCACHE)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;${LOCKSTEP_CCACHE_SETTINGS}\
;CCACHE_NAMESPACE=${CMAKE_SOURCE_DIR};${CMAKE_SOURCE_DIR}/cmake/pch_sum;${CMAKE_SOURCE_DIR};${LOCKSTEP_CCACHE}")
  endif()
endfunction()

add_compile_options(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  # CMake also names the header, by an absolute path that ccache does not make relative; clang needs the compiled one only.
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -Xclang -include-pch -Xclang <PCH_FILE>)
endif()
# Debug information and the names of files in programs hold no folder of this machine.
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)

find_program(LOCKSTEP_MOLD mold)
if(LOCKSTEP_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Files of a target are compiled in batches of at most this many, one translation unit each: the headers and templates they
# share are compiled once per batch, half of the time of a build from nothing. OFF: each file alone, for many small edits.
option(LOCKSTEP_UNITY "Compile the files of a target in batches (unity build)" ON)
set(LOCKSTEP_UNITY_FILES 8)
if(LOCKSTEP_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options(-Wno-subobject-linkage)  # takes a .cc file of a batch for a header
endif()
# lockstep_unity(target): after its sources are known. Batches of one size: nine files are five and four. CMake compiles files
# with compile options of their own alone.
function(lockstep_unity target)
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  math(EXPR batches "(${count} + ${LOCKSTEP_UNITY_FILES} - 1) / ${LOCKSTEP_UNITY_FILES}")
  math(EXPR size "(${count} + ${batches} - 1) / ${batches}")
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE ${size})
endfunction()

# Unused parts of the static libraries stay out of the programs.
add_compile_options(-ffunction-sections -fdata-sections)

if(LOCKSTEP_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "LOCKSTEP_FUZZ needs clang (libFuzzer); found ${CMAKE_CXX_COMPILER_ID}")
  endif()
  # Coverage for the libraries under test; the fuzz programs themselves link -fsanitize=fuzzer.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
