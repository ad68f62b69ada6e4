/* SPDX-License-Identifier: MIT
 * tested.c: see tested.h. */
#include "node/compute/tested.h"

#include "proto/base/buf.h"
#include "proto/base/file.h"

#include <jansson.h>
#include <string.h>

#define FILE_MAX 16384

static int place(const char *folder, struct buf *out)
{
    buf_init(out, 4096);
    return buf_addf(out, "%s/gpu", folder);
}

static bool same(const json_t *v, const char *name, const char *want)
{
    const char *s = json_string_value(json_object_get(v, name));
    return s && !strcmp(s, want);
}

static bool parse(const json_t *v, const struct tested_key *k, struct tested *out)
{
    const json_t *list = json_object_get(v, "broken"), *begun = json_object_get(v, "begun");
    memset(out, 0, sizeof *out);
    if (!same(v, "gpu", k->gpu) || !same(v, "system", k->system) ||
        !same(v, "program", k->program) || !same(v, "code", k->code) || !json_is_integer(begun) ||
        json_integer_value(begun) < 0 || json_integer_value(begun) > 1000) {
        return false;
    }
    out->begun = (unsigned)json_integer_value(begun);
    out->done = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        int at = 0;
        while (at < SH_KERNELS &&
               (!name || strcmp(name, sh_kernel_name((enum sh_kernel)at)) != 0)) {
            at++;
        }
        if (at == SH_KERNELS) {
            return false;
        }
        out->broken[at] = true;
    }
    return true;
}

bool tested_read(const char *folder, const struct tested_key *k, struct tested *out)
{
    struct buf path, text;
    buf_init(&text, FILE_MAX);
    bool ok = !place(folder, &path) && !file_read_all(path.p, &text, NULL);
    json_t *v = ok ? json_loadb(text.p ? text.p : "", text.n, 0, NULL) : NULL;
    ok = v && parse(v, k, out);
    json_decref(v);
    buf_free(&path);
    buf_free(&text);
    return ok;
}

int tested_write(const char *folder, const struct tested_key *k, const struct tested *t,
                 struct err *e)
{
    struct buf path;
    json_t *v = json_pack("{s:s, s:s, s:s, s:s, s:i}", "gpu", k->gpu, "system", k->system,
                          "program", k->program, "code", k->code, "begun", (int)t->begun);
    json_t *list = t->done ? json_array() : NULL;
    for (int i = 0; list && i < SH_KERNELS; i++) {
        if (t->broken[i]) {
            json_array_append_new(list, json_string(sh_kernel_name((enum sh_kernel)i)));
        }
    }
    if (list) {
        json_object_set_new(v, "broken", list);
    }
    char *s = v ? json_dumps(v, JSON_INDENT(1)) : NULL;
    json_decref(v);
    int r = place(folder, &path) || !s ? err_set(e, ERR_NOMEM, "out of memory") : 0;
    r = r ? r : file_mkdirs(folder, e);
    r = r ? r : file_write_atomic(path.p, s, strlen(s), 0644, e);
    free(s);
    buf_free(&path);
    return r;
}
