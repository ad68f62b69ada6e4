/* SPDX-License-Identifier: MIT
 * fuzz_config.c: any bytes as config.json and as generation_config.json. */
#include "node/model/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_config c;
    struct err e = {0};
    if (model_config_parse((const char *)data, size, &c, &e) == 0) {
        /* What was accepted passes the checks of a saved inventory too. */
        if (model_config_check(&c, &e)) {
            abort();
        }
        model_config_finish(&c, &e);
        model_config_free(&c);
    }
    struct model_config g = {.vocab = 1000, .eos = MODEL_NONE};
    model_config_generation((const char *)data, size, &g, &e);
    return 0;
}
