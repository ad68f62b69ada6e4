/* SPDX-License-Identifier: MIT
 * where.c: see where.h. */
#include "node/demo/where.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Put dir[0..dir_n) and `rest` into *out when config.json is there. */
static bool try_dir(struct buf *out, const char *dir, size_t dir_n, const char *rest)
{
    size_t before = out->n;
    if (!buf_add(out, dir, dir_n) && !buf_adds(out, rest)) {
        size_t end = out->n;
        if (!buf_adds(out, "/config.json") && !access(out->p + before, R_OK)) {
            out->n = end;
            out->p[end] = 0;
            return true;
        }
    }
    out->n = before;
    if (out->p) {
        out->p[before] = 0;
    }
    return false;
}

int demo_model_find(const char *exe, struct buf *out, struct err *e)
{
    const char *env = getenv("SHOAL_DEMO_MODEL");
    if (env && *env) {
        if (try_dir(out, env, strlen(env), "")) {
            return 0;
        }
        return err_set(e, ERR_NOTFOUND,
                       "SHOAL_DEMO_MODEL names %s, which holds no config.json: correct or unset it",
                       env);
    }
    const char *slash = exe ? strrchr(exe, '/') : NULL;
    if (slash) {
        size_t n = (size_t)(slash - exe);
        if (try_dir(out, exe, n, "/demo-model") ||
            try_dir(out, exe, n, "/../share/shoal/demo-model")) {
            return 0;
        }
    }
    static const char installed[] = SHOAL_DEMO_INSTALLED, source[] = SHOAL_DEMO_SOURCE;
    if (try_dir(out, installed, strlen(installed), "") ||
        try_dir(out, source, strlen(source), "")) {
        return 0;
    }
    return err_set(e, ERR_NOTFOUND,
                   "the demo model is missing (looked beside the program, in %s and in %s): give "
                   "--model, or set SHOAL_DEMO_MODEL to its folder",
                   installed, source);
}
