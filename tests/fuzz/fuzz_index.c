/* SPDX-License-Identifier: MIT
 * fuzz_index.c: any bytes as model.safetensors.index.json of a small model. */
#include "fuzz/model_mini.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model *m = mini_model();
    struct build b;
    struct err e = {0};
    if (build_init(&b, m, &e)) {
        abort();
    }
    if (build_index(&b, (const char *)data, size, &e) == 0) {
        uint32_t n = model_tensor_count(m);
        for (uint32_t t = 0; t < n; t++) {
            if (b.shard[t] >= m->n_shards) {
                abort(); /* accepted, but a tensor has no shard */
            }
        }
        for (uint32_t i = 0; i < m->n_shards; i++) {
            if (strchr(m->shards[i].file, '/') || strstr(m->shards[i].file, "..")) {
                abort();
            }
        }
    } else if (strncmp(e.msg, MODEL_INDEX_FILE ": ", sizeof MODEL_INDEX_FILE + 1) != 0) {
        abort(); /* the sentence names the file */
    }
    build_free(&b);
    model_close(m);
    return 0;
}
