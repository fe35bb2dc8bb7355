# lockstep_embed(target file symbol): the file's bytes become `extern const unsigned char symbol[]`, a zero behind them, and
# `extern const size_t symbol_size` of namespace lockstep. The assembler copies the bytes, which takes no time even for a
# font; it is told the names as C++ mangles them.
function(lockstep_embed target file symbol)
  foreach(name ${symbol} ${symbol}_size)
    string(LENGTH ${name} length)
    set(mangled_${name} _ZN8lockstep${length}${name}E)
  endforeach()
  set(bytes ${mangled_${symbol}})
  set(size ${mangled_${symbol}_size})
  set(out ${CMAKE_BINARY_DIR}/embedded/${symbol}.cc)
  file(CONFIGURE OUTPUT ${out} CONTENT [[
asm(R"(
  .section .rodata
  .balign 16
  .global @bytes@
@bytes@:
  .incbin "@file@"
@bytes@_end:
  .byte 0
  .balign 8
  .global @size@
@size@:
  .quad @bytes@_end - @bytes@
  .previous
)");
]] @ONLY)
  target_sources(${target} PRIVATE ${out} ${file})  # the file may be made by a rule of its own
  set_source_files_properties(${out} TARGET_DIRECTORY ${target} PROPERTIES OBJECT_DEPENDS ${file}
    SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
