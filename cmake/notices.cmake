# Notices of what is inside the programs: archives that are linked, headers that are compiled in, files that are embedded.
#
#   lockstep_component(name LICENSE spdx HOME url FROM file [TEXT file VERSION version] [COMMON file])
#   lockstep_notices(program target component...)
#
# FROM is a file of the component as the build uses it (a path, or a header below an include folder). At build time its
# Debian package gives version and text (/usr/share/doc/<package>/copyright), so that both are those of what was built
# in; TEXT and VERSION stand for it where the file is of no package. COMMON names a text of /usr/share/common-licenses
# that the package only refers to; it is printed once. Elsewhere than on Debian the notice says where to find the text.
# tests/integration/test_licenses.py fails when an archive or header is used and has no component here.
#
# The target, the program or a library in it, gets the text as notices_of_<program> (see embed.cmake). This file is also the script that writes it.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  set(line "--------------------------------------------------------------------------------\n")
  set(table "")
  set(texts "")
  set(common Apache-2.0)
  file(STRINGS ${LIST} rows)
  foreach(row ${rows})
    string(REPLACE "|" ";" field "${row}")
    list(GET field 0 name)
    list(GET field 1 license)
    list(GET field 2 home)
    list(GET field 3 from)
    list(GET field 4 text_file)
    list(GET field 5 version)
    list(GET field 6 more)
    set(package "")
    if(NOT text_file)
      execute_process(COMMAND dpkg-query -S ${from} OUTPUT_VARIABLE owner RESULT_VARIABLE code ERROR_QUIET)
      if(code EQUAL 0 AND owner MATCHES "^([^:, ]+)")
        set(package ${CMAKE_MATCH_1})
        execute_process(COMMAND dpkg-query -W -f "\${Version}\n" ${package} OUTPUT_VARIABLE version ERROR_QUIET)
        string(REGEX REPLACE "\n.*" "" version "${version}")  # one line for each architecture
        set(text_file /usr/share/doc/${package}/copyright)
      endif()
    endif()
    if(NOT version)
      set(version "version unknown")
    endif()
    set(what "${name} ${version}, ${license}")
    if(package)
      string(APPEND what " (Debian package ${package})")
    endif()
    string(APPEND table "  ${what}\n")
    string(APPEND texts "${line}${what}\n${home}\n${line}\n")
    if(EXISTS "${text_file}")
      if(package)
        string(APPEND texts "The package's copyright file. It covers all of its sources, also parts that are not in this"
          " program.\n\n")
      endif()
      file(READ ${text_file} text)
      string(APPEND texts "${text}\n")
      list(APPEND common ${more})
    else()
      string(APPEND texts "The license text was not found on the machine this was built on; see the address above.\n\n")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES common)
  foreach(one ${common})
    set(file /usr/share/common-licenses/${one})
    if(one STREQUAL Apache-2.0)
      set(file ${SOURCE}/LICENSE)
    endif()
    if(EXISTS ${file})
      file(READ ${file} text)
      string(APPEND texts "${line}${one}: the license text that others above refer to\n${line}\n${text}\n")
    endif()
  endforeach()
  file(READ ${SOURCE}/NOTICE own)
  file(WRITE ${OUT} "${own}
Licensed under the Apache License, Version 2.0; the text is below under Apache-2.0.

Inside ${PROGRAM}:

${table}
${texts}")
  return()
endif()

set(LOCKSTEP_NOTICES_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(lockstep_component name)
  cmake_parse_arguments(ARG "" "LICENSE;HOME;FROM;TEXT;VERSION;COMMON" "" ${ARGN})
  if(NOT IS_ABSOLUTE "${ARG_FROM}")
    find_path(LOCKSTEP_FOLDER_OF_${name} ${ARG_FROM})
    mark_as_advanced(LOCKSTEP_FOLDER_OF_${name})
    set(ARG_FROM ${LOCKSTEP_FOLDER_OF_${name}}/${ARG_FROM})
  endif()
  file(REAL_PATH "${ARG_FROM}" from)
  set_property(GLOBAL PROPERTY lockstep_component_${name}
    "${name}|${ARG_LICENSE}|${ARG_HOME}|${from}|${ARG_TEXT}|${ARG_VERSION}|${ARG_COMMON}")
  set_property(GLOBAL PROPERTY lockstep_component_from_${name} ${from})
endfunction()

function(lockstep_notices program target)
  set(list ${CMAKE_BINARY_DIR}/notices/${program}.list)
  set(out ${CMAKE_BINARY_DIR}/notices/${program}.txt)
  set(content "")
  set(depends "")
  foreach(name ${ARGN})
    get_property(row GLOBAL PROPERTY lockstep_component_${name})
    if(NOT row)
      message(FATAL_ERROR "lockstep_notices(${program}): there is no lockstep_component(${name})")
    endif()
    get_property(from GLOBAL PROPERTY lockstep_component_from_${name})
    string(APPEND content "${row}\n")
    if(EXISTS ${from})
      list(APPEND depends ${from})
    endif()
  endforeach()
  file(CONFIGURE OUTPUT ${list} CONTENT "${content}" @ONLY)
  add_custom_command(OUTPUT ${out} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DPROGRAM=${program} -DLIST=${list} -DOUT=${out} -DSOURCE=${CMAKE_SOURCE_DIR}
      -P ${LOCKSTEP_NOTICES_SCRIPT}
    DEPENDS ${list} ${depends} ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/NOTICE ${LOCKSTEP_NOTICES_SCRIPT})
  string(MAKE_C_IDENTIFIER notices_of_${program} symbol)
  lockstep_embed(${target} ${out} ${symbol})
endfunction()

lockstep_component(fmt LICENSE MIT HOME https://github.com/fmtlib/fmt FROM fmt/format.h)
lockstep_component(spdlog LICENSE MIT HOME https://github.com/gabime/spdlog FROM spdlog/spdlog.h)
lockstep_component(CLI11 LICENSE BSD-3-Clause HOME https://github.com/CLIUtils/CLI11 FROM CLI/CLI.hpp)
lockstep_component(nlohmann-json LICENSE MIT HOME https://github.com/nlohmann/json FROM nlohmann/json.hpp)
lockstep_component(xxHash LICENSE BSD-2-Clause HOME https://github.com/Cyan4973/xxHash FROM xxhash.h)
lockstep_component(yaml-cpp LICENSE MIT HOME https://github.com/jbeder/yaml-cpp FROM ${LOCKSTEP_YAML_LIB})
lockstep_component(OpenSSL LICENSE Apache-2.0 HOME https://www.openssl.org FROM ${LOCKSTEP_CRYPTO_LIB})
lockstep_component(Vectorscan LICENSE BSD-3-Clause HOME https://github.com/VectorCamp/vectorscan FROM ${LOCKSTEP_HS_LIB})
lockstep_component(RE2 LICENSE BSD-3-Clause HOME https://github.com/google/re2 FROM ${LOCKSTEP_RE2_LIB})
lockstep_component(ncurses LICENSE X11 HOME https://invisible-island.net/ncurses FROM ${LOCKSTEP_NCURSES_LIB})
lockstep_component(DejaVu-Sans LICENSE Bitstream-Vera HOME https://dejavu-fonts.github.io FROM ${LOCKSTEP_FONT})

execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE lockstep_libstdcxx
  OUTPUT_STRIP_TRAILING_WHITESPACE)
lockstep_component(libstdc++ LICENSE "GPL-3.0-or-later WITH GCC-exception-3.1" HOME https://gcc.gnu.org COMMON GPL-3
  FROM "${lockstep_libstdcxx}")

# A pip package: its license lies in its .dist-info, its version in a file of its own.
if(LOCKSTEP_TORCH_FOUND)
  file(GLOB lockstep_torch_license ${lockstep_torch_dir}/../torch-*.dist-info/licenses/LICENSE
    ${lockstep_torch_dir}/../torch-*.dist-info/LICENSE)
  if(lockstep_torch_license)
    list(GET lockstep_torch_license 0 lockstep_torch_license)
  endif()
  file(STRINGS ${lockstep_torch_dir}/version.py lockstep_torch_version REGEX "^__version__")
  string(REGEX REPLACE ".*'(.*)'.*" "\\1" lockstep_torch_version "${lockstep_torch_version}")
  lockstep_component(PyTorch LICENSE BSD-3-Clause HOME https://pytorch.org FROM ${lockstep_torch_dir}/include/torch/version.h
    TEXT "${lockstep_torch_license}" VERSION "${lockstep_torch_version}")
endif()
