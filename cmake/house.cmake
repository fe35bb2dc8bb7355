# The table of docs/architecture.md, enforced. Every folder of src/ is one library with an include root that holds that
# folder alone (build/roots/<folder>/<folder> -> src/<folder>). A target has the roots of the folders it names and no
# others: roots are not inherited from the libraries it links. A file that includes another folder does not compile.

function(lockstep_root folder)
  set(root ${CMAKE_BINARY_DIR}/roots/${folder})
  if(NOT EXISTS ${root}/${folder})
    file(MAKE_DIRECTORY ${root})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${folder} ${root}/${folder} SYMBOLIC)
  endif()
  set(LOCKSTEP_ROOT ${root} PARENT_SCOPE)
endfunction()

# lockstep_use(target folders...): the target links these folders and sees their headers.
function(lockstep_use target)
  foreach(folder ${ARGN})
    string(REGEX REPLACE "_(torch|train|web)$" "" outer ${folder})  # comm_torch is comm/torch, cli_train is cli/train
    lockstep_root(${outer})
    target_include_directories(${target} PRIVATE ${LOCKSTEP_ROOT})
    target_link_libraries(${target} PUBLIC lockstep_${folder})
  endforeach()
endfunction()

# One shared precompiled header for torch-free code.
add_library(lockstep_pch OBJECT ${CMAKE_SOURCE_DIR}/cmake/pch.cc)
target_precompile_headers(lockstep_pch PRIVATE ${CMAKE_SOURCE_DIR}/cmake/pch.h)
lockstep_pch_cache(lockstep_pch)
target_compile_definitions(lockstep_pch PUBLIC FMT_HEADER_ONLY SPDLOG_HEADER_ONLY SPDLOG_FMT_EXTERNAL)

# lockstep_folder(name [AT dir] [TORCH] USES folders... LIBS ...): AT names a subfolder of src/ that is a target of its own
# (the part of a folder that needs LibTorch); its headers are seen through the outer folder's root. A main.cc is left to
# lockstep_program.
function(lockstep_folder folder)
  cmake_parse_arguments(ARG "TORCH" "AT" "USES;LIBS" ${ARGN})
  set(dir ${folder})
  if(ARG_AT)
    set(dir ${ARG_AT})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${dir}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/main\\.cc$")
  if(NOT sources)
    set(sources ${CMAKE_SOURCE_DIR}/cmake/pch.cc)  # a folder whose first file is a header
  endif()
  string(REGEX REPLACE "/.*" "" outer ${dir})
  lockstep_root(${outer})
  add_library(lockstep_${folder} STATIC ${sources})
  lockstep_unity(lockstep_${folder})
  target_include_directories(lockstep_${folder} PRIVATE ${LOCKSTEP_ROOT})
  target_compile_definitions(lockstep_${folder} PUBLIC FMT_HEADER_ONLY SPDLOG_HEADER_ONLY SPDLOG_FMT_EXTERNAL)
  if(ARG_TORCH)
    target_link_libraries(lockstep_${folder} PUBLIC lockstep_torch)
    target_precompile_headers(lockstep_${folder} REUSE_FROM lockstep_torch_pch)
  else()
    target_precompile_headers(lockstep_${folder} REUSE_FROM lockstep_pch)
  endif()
  lockstep_use(lockstep_${folder} ${ARG_USES})
  target_link_libraries(lockstep_${folder} PUBLIC ${ARG_LIBS} Threads::Threads)
  if(folder STREQUAL base)
    target_sources(lockstep_base PRIVATE ${CMAKE_SOURCE_DIR}/cmake/fmt_once.cc)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/cmake/fmt_once.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/base/version.cc PROPERTIES
      COMPILE_DEFINITIONS LOCKSTEP_VERSION="${PROJECT_VERSION}")
    target_link_libraries(lockstep_base PUBLIC ${LOCKSTEP_YAML_LIB} ${LOCKSTEP_CRYPTO_LIB})
  endif()
endfunction()

# Third-party code is linked statically where Debian ships an archive: one file for any node.
find_library(LOCKSTEP_YAML_LIB NAMES libyaml-cpp.a yaml-cpp REQUIRED)
find_library(LOCKSTEP_CRYPTO_LIB NAMES libcrypto.a crypto REQUIRED)
find_library(LOCKSTEP_HS_LIB NAMES libhs.a hs REQUIRED)
find_library(LOCKSTEP_RE2_LIB NAMES libre2.a re2 REQUIRED)
find_library(LOCKSTEP_NCURSES_LIB NAMES libncursesw.a ncursesw REQUIRED)
find_library(LOCKSTEP_TINFO_LIB NAMES libtinfo.a tinfo REQUIRED)

# lockstep_program(name MAIN file [FOLDER dir] [TORCH] USES folders...): FOLDER adds every other .cc of that folder.
function(lockstep_program name)
  cmake_parse_arguments(ARG "TORCH" "MAIN;FOLDER" "USES" ${ARGN})
  set(sources ${CMAKE_SOURCE_DIR}/${ARG_MAIN})
  if(ARG_FOLDER)
    file(GLOB more CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${ARG_FOLDER}/*.cc)
    list(APPEND sources ${more})
    list(REMOVE_DUPLICATES sources)
  endif()
  add_executable(${name} ${sources})
  lockstep_unity(${name})
  lockstep_commit(${name})
  if(ARG_FOLDER MATCHES "^src/cli")
    lockstep_root(cli)
    target_include_directories(${name} PRIVATE ${LOCKSTEP_ROOT})
  endif()
  if(ARG_TORCH)
    target_link_libraries(${name} PRIVATE lockstep_torch)
    target_precompile_headers(${name} REUSE_FROM lockstep_torch_pch)
  else()
    target_precompile_headers(${name} REUSE_FROM lockstep_pch)
  endif()
  lockstep_use(${name} ${ARG_USES})
  if(NOT LOCKSTEP_SANITIZE AND NOT ARG_TORCH)
    # libstdc++ inside, libgcc_s outside: exceptions work and no symbol newer than glibc 2.34 is needed.
    target_sources(${name} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/old_glibc.cc)
    set_source_files_properties(${CMAKE_SOURCE_DIR}/cmake/old_glibc.cc TARGET_DIRECTORY ${name}
      PROPERTIES SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
    target_link_options(${name} PRIVATE -static-libstdc++ -shared-libgcc -Wl,--gc-sections)
  endif()
endfunction()
