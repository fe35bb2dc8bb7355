# lockstep_embed(target file symbol): the file's bytes become `extern const unsigned char symbol[]` and
# `extern const size_t symbol_size` of namespace lockstep. Made at build time; this file is also the script that does it.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${FILE} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  file(WRITE ${OUT} "#include <cstddef>
namespace lockstep {
extern const unsigned char ${SYMBOL}[];
extern const size_t ${SYMBOL}_size;
const unsigned char ${SYMBOL}[] = {
${bytes}0};
const size_t ${SYMBOL}_size = sizeof ${SYMBOL} - 1;
}  // namespace lockstep
")
  return()
endif()

set(LOCKSTEP_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(lockstep_embed target file symbol)
  set(out ${CMAKE_BINARY_DIR}/embedded/${symbol}.cc)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DFILE=${file} -DOUT=${out} -DSYMBOL=${symbol} -P ${LOCKSTEP_EMBED_SCRIPT}
    DEPENDS ${file} ${LOCKSTEP_EMBED_SCRIPT} VERBATIM)
  target_sources(${target} PRIVATE ${out})
  set_source_files_properties(${out} TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()
