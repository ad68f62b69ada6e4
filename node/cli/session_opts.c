/* SPDX-License-Identifier: MIT
 * session_opts.c: the options by which commands name a model and what it may take. See session.h.
 */
#include "node/cli/budget.h"
#include "node/cli/session.h"

const char *const cli_trust_names[] = {"any", "member", "two", "origin", "manifest", NULL};
#define AT(f) offsetof(struct model_opts, f)
const struct opt model_opts_table[MODEL_OPTS_COUNT] = {
    {"model", "M",
     "folder or http(s) URL of a K3 model, or a hub's org/name[@revision]; without it the demo "
     "model is used",
     OPT_TEXT, AT(model), 0, 0, NULL},
    {"home", "DIR",
     "run as the node of this folder: its cache, its peers (see shoal init); beside a node that "
     "runs there (shoal up) as its guest",
     OPT_TEXT, AT(home), 0, 0, NULL},
    {"cache", "DIR",
     "keep what comes from the origin (what --model names) in this folder; default: the data "
     "folder's cache for a URL, none for a folder, which is read in place",
     OPT_TEXT, AT(cache), 0, 0, NULL},
    {"offline", NULL, "never contact the origin: what is not cached is an error", OPT_FLAG,
     AT(offline), 0, 0, NULL},
    {"mirror", "URL", CLI_MIRROR_HELP, OPT_TEXTS, AT(mirrors), 0, 0, NULL},
    {"rate-limit", "SIZE", "most bytes a second from the origin", OPT_BYTES, AT(rate_limit), 1,
     1e18, NULL},
    {"mirror-rate-limit", "SIZE", CLI_MIRROR_RATE_HELP, OPT_BYTES, AT(mirror_rate), 1, 1e18, NULL},
    {"disk-budget", "SIZE", CLI_DISK_BUDGET_HELP, OPT_BYTES, AT(disk_budget), 1, 1e18, NULL},
    {"disk-floor", "SIZE", CLI_DISK_FLOOR_HELP, OPT_BYTES, AT(disk_floor), 1, 1e18, NULL},
    {"trust", "BASIS", CLI_TRUST_HELP, OPT_CHOICE, AT(trust), 0, 0, cli_trust_names},
    NET_OPTS(struct model_opts, net),
};
#undef AT

/* In the order of enum kern_isa. */
const char *const cli_isa_names[] = {"auto", "scalar", "avx2", "neon", NULL};
/* In the order of enum infer_prefetch. */
static const char *const prefetch_names[] = {"auto", "off", "on", NULL};
#define AT(f) offsetof(struct compute_opts, f)
const struct opt compute_opts_table[COMPUTE_OPTS_COUNT] = {
    {"threads", "N", "workers; default: one for each performance core", OPT_COUNT, AT(threads), 1,
     1024, NULL},
    {"backend", "WHAT",
     "what computes: auto (default) is the GPU of a Mac whose self-test passed, else the CPU; cpu; "
     "gpu; the results are the same",
     OPT_CHOICE, AT(backend), 0, 0, compute_choices},
    {"isa", "SET", "instruction set: auto, scalar, avx2 or neon; the results are the same",
     OPT_CHOICE, AT(isa), 0, 0, cli_isa_names},
    {"ram-budget", "SIZE", "memory for experts; default: half of the machine's, less the spine",
     OPT_BYTES, AT(ram), 0, 1e18, NULL},
    {"ram", "SIZE", "the same: the name that it had before", OPT_BYTES, AT(ram), 0, 1e18, NULL},
    {"spine-ram", "SIZE",
     "memory for the spine (all but the experts); layers beyond it are read from disk for each "
     "token",
     OPT_BYTES, AT(spine_ram), 0, 1e18, NULL},
    {"prefill-chunk", "N",
     "prompt tokens computed together, each weight read once for all of them; default: 64 to 1024, "
     "by memory",
     OPT_COUNT, AT(chunk), 1, 65536, NULL},
    {"prefetch", "WHEN",
     "ask for the experts that the next layer will probably choose: auto (the default) measures "
     "whether it pays",
     OPT_CHOICE, AT(prefetch), 0, 0, prefetch_names},
    {"flush-subnormals", NULL, "run with subnormal numbers flushed: a proof that none matters",
     OPT_FLAG, AT(flush_subnormals), 0, 0, NULL},
};
#undef AT

int model_opts_check(const struct model_opts *o, struct err *e)
{
    return o->home && o->cache
               ? err_set(e, ERR_ARG, "give only one of --home, which has a cache, and --cache")
               : 0;
}
