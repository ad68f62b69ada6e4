/* SPDX-License-Identifier: MIT
 * service_opts.c: the options of the API and their checks; see service.h. */
#include "node/api/web.h"
#include "node/api/web_rules.h"
#include "node/cli/service.h"
#include "node/engine/engine.h"
#include "node/text/chat.h"
#include "proto/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KEY_MAX 512

#define AT(f) offsetof(struct service_opts, f)
const struct opt service_opts_table[SERVICE_OPTS_COUNT] = {
    {"api", "HOST:PORT",
     "where the API listens: OpenAI's and Anthropic's interfaces, /health and /metrics; another "
     "address than this machine's own (127.0.0.1, [::1]) needs --api-key-file",
     OPT_TEXT, AT(api), 0, 0, NULL},
    {"api-key-file", "FILE", "clients must send the key that stands in this file", OPT_TEXT,
     AT(key_file), 0, 0, NULL},
    {"cors", "ORIGIN", "web pages of this origin may use the API; * for all", OPT_TEXT, AT(cors), 0,
     0, NULL},
    {"model-name", "ID",
     "the model's name in requests; default: kimi-k3, k3-demo, or the last part of --model",
     OPT_TEXT, AT(model_name), 0, 0, NULL},
    {"parallel", "N", "requests that are computed together; default 8", OPT_COUNT, AT(parallel), 1,
     ENGINE_BATCH_MAX, NULL},
    {"queue", "N", "requests that wait beside them; more are refused (429); default 64", OPT_COUNT,
     AT(queue), 1, 100000, NULL},
    {"think", "LEVEL",
     "how long answers think where a request does not say: none, minimal, low, medium, high or max "
     "(default)",
     OPT_TEXT, AT(think), 0, 0, NULL},
    {"speculate", "WHEN", CLI_SPECULATE_HELP, OPT_TEXT, AT(speculate), 0, 0, NULL},
    {"request-timeout", "TIME",
     "most time for a request that names none, such as 30m; default: "
     "no limit",
     OPT_TIME, AT(timeout), 1, 1e7, NULL},
    {"no-save-states", NULL, "keep states of conversations in RAM only, not on disk", OPT_FLAG,
     AT(no_save_states), 0, 0, NULL},
};
#undef AT

static int check_name(const char *name, struct err *e)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)name[i] <= ' ' || name[i] == 0x7f) {
            n = 0;
        }
    }
    return n && n < SERVICE_NAME
               ? 0
               : err_set(e, ERR_ARG, "--model-name: it must be 1 to %d bytes without blanks",
                         SERVICE_NAME - 1);
}

/* "*", or scheme://host[:port] as a browser's Origin header has it. */
static int check_cors(const char *cors, struct err *e)
{
    const char *at = strstr(cors, "://");
    return !strcmp(cors, "*") || (at && at != cors && at[3] && !strchr(at + 3, '/'))
               ? 0
               : err_set(e, ERR_ARG,
                         "--cors %.200s: it must be a page's origin, such as "
                         "https://app.example.net (no path, no / at the end), or *",
                         cors);
}

int service_api_hint(struct err *e)
{
    char was[sizeof e->msg];
    memcpy(was, e->msg, sizeof was);
    return err_set(e, e->code, "%.400s; --api HOST:PORT names another, such as 127.0.0.1:8081%s",
                   was, e->code == ERR_BUSY ? "" : " (0.0.0.0: all addresses of this machine)");
}

int service_opts_check(const struct service_opts *o, struct err *e)
{
    char host[64];
    uint16_t port;
    enum chat_think think;
    const char *alone = o->key_file         ? "--api-key-file"
                        : o->cors           ? "--cors"
                        : o->model_name     ? "--model-name"
                        : o->parallel.set   ? "--parallel"
                        : o->queue.set      ? "--queue"
                        : o->think          ? "--think"
                        : o->speculate      ? "--speculate"
                        : o->timeout.set    ? "--request-timeout"
                        : o->no_save_states ? "--no-save-states"
                                            : NULL;
    if (!o->api) {
        return alone ? err_set(e, ERR_ARG, "%s goes with --api", alone) : 0;
    }
    if (!opt_host_port(o->api, host, sizeof host, &port, true)) {
        return err_set(e, ERR_ARG, "--api %.100s: it must be HOST:PORT, such as 127.0.0.1:8080",
                       o->api);
    }
    char text[80];
    snprintf(text, sizeof text, strchr(host, ':') ? "[%s]" : "%s", host);
    if (!web_host_fine(text, o->key_file != NULL)) {
        return err_set(e, ERR_ARG,
                       "--api %.100s: it can be reached from other machines: give an API key "
                       "(--api-key-file), or listen on 127.0.0.1",
                       o->api);
    }
    if (o->think && !chat_think_by_name(o->think, strlen(o->think), &think)) {
        return err_set(e, ERR_ARG,
                       "--think %.50s: it must be none, minimal, low, medium, high or max",
                       o->think);
    }
    struct spec_opts spec;
    int r = cli_speculate(o->speculate, &spec, e);
    r = !r && o->cors ? check_cors(o->cors, e) : r;
    return !r && o->model_name ? check_name(o->model_name, e) : r;
}

int service_read_key(const char *path, char **key, bool *others, struct err *e)
{
    struct buf b;
    struct stat sb;
    *key = NULL;
    buf_init(&b, KEY_MAX);
    int r = file_read_all(path, &b, e);
    *others = !r && !stat(path, &sb) && (sb.st_mode & 077);
    size_t n = r ? 0 : b.n;
    while (n && (b.p[n - 1] == '\n' || b.p[n - 1] == '\r')) {
        n--;
    }
    bool fine = n > 0;
    for (size_t i = 0; i < n; i++) {
        fine = fine && b.p[i] > ' ' && b.p[i] < 0x7f;
    }
    if (!r && !fine) {
        r = err_set(e, ERR_FORMAT,
                    "%s: an API key is one line of printable characters without blanks", path);
    }
    *key = r ? NULL : strndup(b.p, n);
    if (!r && !*key) {
        r = err_set(e, ERR_NOMEM, "out of memory");
    }
    buf_free(&b);
    return r;
}

int service_may_open(const struct service_opts *o, struct err *e)
{
    char host[64], *key = NULL;
    uint16_t port;
    bool others;
    if (!o->api || !opt_host_port(o->api, host, sizeof host, &port, true)) {
        return 0; /* nothing to open, or service_opts_check has said why not */
    }
    int r = o->key_file ? service_read_key(o->key_file, &key, &others, e) : 0;
    free(key);
    if (!r) {
        r = web_may_listen(host, port, e) ? service_api_hint(e) : 0;
    }
    return r;
}
