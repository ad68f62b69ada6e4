/* SPDX-License-Identifier: MIT
 * cmd_verify.c: `shoal verify`: does a peer compute the same bits as this machine? */
#include "node/cli/home.h"
#include "node/cli/verify.h"
#include "node/daemon/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_S 600
#define MEET_MS 10000 /* for the peer to be connected, where this process is the node */

struct verify_opts {
    struct common_opts common;
    struct home_opts home;
    struct compute_opts compute;
    const char *model, *prompt;
    struct opt_count max_new, wait;
};

#define AT(f) offsetof(struct verify_opts, f)
static const struct opt table[] = {
    {"prompt", "TEXT",
     "run this text, which is sent to the peer; default: a prompt that is built in", OPT_TEXT,
     AT(prompt), 0, 0, NULL},
    {"max-new", "N", "new tokens to compute; default 16", OPT_COUNT, AT(max_new), 1,
     MESH_VERIFY_NEW, NULL},
    {"wait", "TIME", "for the peer's answer; default 10m", OPT_TIME, AT(wait), 1, 600, NULL},
    {"model", "M",
     "folder or http(s) URL of a K3 model; default: the running node's, else the demo", OPT_TEXT,
     AT(model), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"Verifying", table, sizeof table / sizeof *table, 0},
    {"Computation", compute_opts_table, COMPUTE_OPTS_COUNT, AT(compute)},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

static bool hex_bytes(const char *s, uint8_t out[SHA256_SIZE])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < 2 * SHA256_SIZE; i++) {
        const char *d = s && s[i] ? strchr(digits, s[i]) : NULL;
        if (!d) {
            return false;
        }
        out[i / 2] = (uint8_t)(out[i / 2] << 4 | (d - digits));
    }
    return !s[2 * SHA256_SIZE];
}

/* What the owner's socket answers, as a struct. */
static int read_answer(const json_t *a, struct mesh_verify_answer *out, struct err *e)
{
    const json_t *ids = json_object_get(a, "ids");
    memset(out, 0, sizeof *out);
    if (!hex_bytes(json_string_value(json_object_get(a, "receipt")), out->receipt) ||
        !hex_bytes(json_string_value(json_object_get(a, "root")), out->model_root) ||
        !json_is_array(ids) || json_array_size(ids) > MESH_VERIFY_NEW) {
        return err_set(e, ERR_FORMAT,
                       "the running node gave no receipt: is it of another version?");
    }
    out->numerics_version = (uint32_t)json_integer_value(json_object_get(a, "numerics"));
    out->n_ids = (uint32_t)json_array_size(ids);
    for (uint32_t i = 0; i < out->n_ids; i++) {
        out->ids[i] = (uint32_t)json_integer_value(json_array_get(ids, i));
    }
    return 0;
}

/* The peer's answer: by this process when it is the node, else by the one that is. */
static int ask_peer(struct cli_home *h, struct node *n, const char *peer,
                    const struct mesh_verify_ask *ask, unsigned ms, struct mesh_verify_answer *out,
                    struct err *e)
{
    if (node_owner(n)) {
        mesh_wait_peers(node_mesh(n), 1, MEET_MS);
        int r = mesh_verify(node_mesh(n), peer, ask, ms, out, e);
        return r ? r : out->code ? err_set(e, out->code, "the peer says: %s", out->text) : 0;
    }
    json_t *a = NULL;
    int r = cli_home_ask(h,
                         json_pack("{s:s, s:s, s:s, s:i, s:I}", "op", "verify", "peer", peer,
                                   "prompt", ask->prompt, "max_new", (int)ask->max_new,
                                   "timeout_ms", (json_int_t)ms),
                         ms + 5000, &a, e);
    r = r ? r : read_answer(a, out, e);
    json_decref(a);
    return r;
}

/* ---- the result ---- */

static json_t *side_json(const struct mesh_verify_answer *a)
{
    char receipt[2 * SHA256_SIZE + 1], root[2 * SHA256_SIZE + 1];
    json_t *ids = json_array();
    sha256_hex(a->receipt, receipt);
    sha256_hex(a->model_root, root);
    for (uint32_t i = 0; i < a->n_ids; i++) {
        json_array_append_new(ids, json_integer(a->ids[i]));
    }
    return json_pack("{s:s, s:s, s:I, s:o}", "receipt", receipt, "model_root", root, "numerics",
                     (json_int_t)a->numerics_version, "ids", ids);
}

static int print(struct cli *c, const char *peer, const struct mesh_verify_answer *here,
                 const struct mesh_verify_answer *there)
{
    const char *what;
    uint32_t at;
    bool same = verify_compare(here, there, &what, &at);
    if (c->json) {
        json_t *v = json_pack("{s:s, s:b, s:s, s:o, s:o}", "peer", peer, "same", (int)same,
                              "result", what, "here", side_json(here), "there", side_json(there));
        if (!same) {
            json_object_set_new(v, "first_difference", json_integer(at));
        }
        int r = cli_json(c, v);
        return r ? r : same ? CLI_OK : CLI_FAILED;
    }
    char a[2 * SHA256_SIZE + 1], b[2 * SHA256_SIZE + 1];
    sha256_hex(here->receipt, a);
    sha256_hex(there->receipt, b);
    if (same) {
        printf("%s computes the same as this machine, bit for bit: %u tokens, receipt %s\n", peer,
               here->n_ids, a);
    } else if (!strcmp(what, "model")) {
        sha256_hex(here->model_root, a);
        sha256_hex(there->model_root, b);
        printf("%s has another model: root %s, here %s\n", peer, b, a);
    } else if (!strcmp(what, "numerics")) {
        printf("%s has numerics version %u, here it is %u: install the same version of Shoal\n",
               peer, there->numerics_version, here->numerics_version);
    } else if (!strcmp(what, "tokens")) {
        printf("%s computes something else: new token %u is %u there, %u here, from the same model "
               "root.\nWeights that were damaged on one of the two are the likeliest cause; shoal "
               "verify with a third node tells which.\n",
               peer, at, at < there->n_ids ? there->ids[at] : 0,
               at < here->n_ids ? here->ids[at] : 0);
    } else {
        printf("%s chose the same %u tokens, but with other bits: receipt %s, here %s\n", peer,
               here->n_ids, b, a);
    }
    int r = cli_write(c, "", 0);
    return r ? r : same ? CLI_OK : CLI_FAILED;
}

/* ---- the command ---- */

static int both(struct cli_home *h, const struct verify_opts *o, const char *peer,
                struct mesh_verify_answer *here, struct mesh_verify_answer *there, struct err *e)
{
    struct cli_session s;
    struct cli brief = *h->c;
    struct mesh_verify_ask ask = {.max_new = o->max_new.set ? (uint32_t)o->max_new.v : VERIFY_NEW};
    struct model_opts mo = {.model = o->model, .home = h->path};
    unsigned ms = (o->wait.set ? (unsigned)o->wait.v : WAIT_S) * 1000;
    if (o->prompt) {
        snprintf(ask.prompt, sizeof ask.prompt, "%s", o->prompt); /* its length was checked */
        cli_note(h->c, "the text of --prompt is sent to %s", peer);
    }
    brief.brief = true;
    int r = cli_session_open(&s, &brief, &mo, &o->compute, SESSION_INFER, e);
    if (r) {
        return r;
    }
    cli_catch_interrupts();
    r = verify_run(&s, &ask, here, e);
    r = r ? r : ask_peer(h, s.node, peer, &ask, ms, there, e);
    cli_session_close(&s);
    return r;
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct verify_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    struct mesh_verify_answer *v = NULL;
    if (o->prompt && (!o->prompt[0] || strlen(o->prompt) > MESH_VERIFY_PROMPT)) {
        return cli_usage(c, "--prompt: it must have 1 to %d bytes", MESH_VERIFY_PROMPT);
    }
    int r = cli_home_open(&h, c, &o->home, HOME_SHOAL, &e);
    if (!r) {
        v = calloc(2, sizeof *v);
        r = v ? both(&h, o, argv[0], &v[0], &v[1], &e) : err_set(&e, ERR_NOMEM, "out of memory");
    }
    int status = r ? cli_fail(c, &e) : print(c, argv[0], &v[0], &v[1]);
    free(v);
    cli_home_close(&h);
    return status;
}

const struct command cmd_verify = {
    .name = "verify",
    .args = "PEER",
    .summary = "compare what a peer computes with what this machine does",
    .details =
        "Runs the same prompt here and on the peer (a node id, its first characters, or a name) "
        "and\n"
        "compares the receipts: whether the model is the same, the version of the arithmetic, and\n"
        "each bit of the logits. Says which differs, and from which token on; then the exit "
        "status\n"
        "is 1. Nothing of yours is sent, unless --prompt names a text: that text is sent.",
    .examples = "  shoal verify k7qm\n  shoal verify mini --prompt 'music:' --max-new 32\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .min_args = 1,
    .max_args = 1,
    .size = sizeof(struct verify_opts),
    .run = run,
};
