# cmake -DOUT=folder -DSOURCE=folder -P embed.cmake: shoal.metal, all kernels as one text without
# includes of our own, and shoal_metal.c, the same as bytes for the program.
set(text "")
foreach(f args.h prelude.metal product.metal mla.metal softmax.metal norms.metal mix.metal kda.metal
    router.metal elementwise.metal head.metal)
  file(READ ${SOURCE}/${f} part)
  string(REGEX REPLACE "#include \"[^\"]*\"\n" "" part "${part}")
  string(APPEND text "${part}\n")
endforeach()
file(WRITE ${OUT}/shoal.metal "${text}")
file(READ ${OUT}/shoal.metal hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT}/shoal_metal.c "#include \"shaders/metal_device.h\"\n
const unsigned char sh_metal_text[] = {\n${bytes}};\nconst size_t sh_metal_text_size = sizeof sh_metal_text;\n")
