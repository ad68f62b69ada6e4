/* SPDX-License-Identifier: MIT
 * cmd_invite.c: `shoal invite`: tokens with which other machines join. */
#include "node/cli/home.h"
#include "node/daemon/node.h"
#include "peer/b32.h"
#include "peer/invite.h"
#include "peer/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct invite_opts {
    struct common_opts common;
    struct home_opts home;
    struct opt_count uses, expires;
    struct opt_texts address;
};

#define AT(f) offsetof(struct invite_opts, f)
static const struct opt table[] = {
    {"uses", "N", "how many machines may join with it; default 1", OPT_COUNT, AT(uses), 1,
     INVITE_USES_MAX, NULL},
    {"expires", "TIME", "until when, from now: 90s, 30m, 24h (default), 7d; at most 30d", OPT_TIME,
     AT(expires), 1, INVITE_SECONDS_MAX, NULL},
    {"address", "HOST:PORT",
     "an address under which the others reach this machine, tried before its own (behind a router "
     "or a VPN); may be given several times",
     OPT_TEXTS, AT(address), 0, 0, NULL},
};
static const struct opt_group groups[] = {
    {"Node", home_opts_table, HOME_OPTS_COUNT, AT(home)},
    {"Invite", table, sizeof table / sizeof *table, 0},
    {"General", common_opts_table, COMMON_OPTS_COUNT, 0},
};
#undef AT

/* ---- addresses ---- */

/* "1.2.3.4:4433", "name:4433", "[::1]:4433" into the token. */
static int add_text(struct token *t, const char *text, struct err *e)
{
    char host[TOKEN_HOST_MAX + 1];
    uint16_t port;
    if (!opt_host_port(text, host, sizeof host, &port, false)) {
        return err_set(e, ERR_ARG,
                       "--address %.100s: it must be HOST:PORT, with an IPv6 address in brackets",
                       text);
    }
    return token_add_address(t, host, port, e);
}

static int add_given(struct token *t, const struct opt_texts *given, struct err *e)
{
    int r = 0;
    for (size_t i = 0; !r && i < given->n; i++) {
        r = add_text(t, given->v[i], e);
    }
    return r;
}

/* The given addresses, then those that the token has: as many as it holds. */
static int put_in_front(struct token *t, const struct opt_texts *given, struct err *e)
{
    struct token own = *t;
    t->addrs_n = 0;
    int r = add_given(t, given, e);
    for (size_t i = 0; !r && i < own.addrs_n; i++) {
        int k = token_add_address(t, own.addrs[i].host, own.addrs[i].port, e);
        if (k == ERR_LIMIT) {
            break;
        }
        r = k;
    }
    crypto_wipe(&own, sizeof own);
    return r;
}

/* ---- making one ---- */

struct made {
    struct token t;
    char text[TOKEN_TEXT_MAX];
    bool running; /* a node runs and takes joiners in now */
    int port;     /* where it listens, or will */
};

/* The owner makes it, since it knows its addresses and begins to let joiners in at once. */
static int by_owner(struct cli_home *h, uint32_t uses, uint32_t seconds, struct made *out,
                    struct err *e)
{
    json_t *a = NULL;
    int r = cli_home_ask(
        h, json_pack("{s:s, s:i, s:i}", "op", "invite", "uses", (int)uses, "seconds", (int)seconds),
        0, &a, e);
    const char *text = r ? NULL : json_string_value(json_object_get(a, "token"));
    if (!r && (!text || token_parse(text, strlen(text), &out->t, e))) {
        r = err_set(e, ERR_FORMAT, "the running node gave no invite: is it of another version?");
    }
    json_decref(a);
    out->running = !r;
    return r;
}

static int make(struct cli_home *h, const struct invite_opts *o, struct made *out, struct err *e)
{
    uint32_t uses = o->uses.set ? (uint32_t)o->uses.v : 1;
    uint32_t seconds = o->expires.set ? (uint32_t)o->expires.v : INVITE_SECONDS_DEFAULT;
    struct token check = {.addrs_n = 0};
    int r = member_need_key(&h->m, e);
    r = r ? r : add_given(&check, &o->address, e); /* before an invite is made for nothing */
    if (r) {
        return r;
    }
    r = by_owner(h, uses, seconds, out, e);
    if (r == ERR_OFFLINE) {
        r = node_next_port(h->path, &out->port, e);
        r = r ? r
              : invite_make(h->path, &h->m.group, uses, seconds, (uint64_t)time(NULL), &out->t, e);
        r = r ? r : mesh_token_addresses(&out->t, "::", out->port, e);
        r = r == ERR_OFFLINE && o->address.n ? 0 : r;
    }
    r = r ? r : put_in_front(&out->t, &o->address, e);
    if (!r) {
        out->port = out->running && out->t.addrs_n > o->address.n
                        ? out->t.addrs[out->t.addrs_n - 1].port
                        : out->port;
        token_text(&out->t, out->text);
    }
    return r;
}

static json_t *addresses(const struct token *t)
{
    json_t *l = json_array();
    for (size_t i = 0; i < t->addrs_n; i++) {
        const struct token_addr *a = &t->addrs[i];
        json_array_append_new(
            l, json_sprintf(strchr(a->host, ':') ? "[%s]:%d" : "%s:%d", a->host, (int)a->port));
    }
    return l;
}

static int print(struct cli_home *h, const struct invite_opts *o, const struct made *m)
{
    uint64_t seconds = o->expires.set ? o->expires.v : INVITE_SECONDS_DEFAULT;
    json_int_t uses = o->uses.set ? (json_int_t)o->uses.v : 1;
    char d[CLI_NUM];
    json_t *addrs = addresses(&m->t);
    if (h->c->json) {
        return cli_json(h->c, json_pack("{s:s, s:I, s:I, s:I, s:o, s:b, s:i}", "token", m->text,
                                        "uses", uses, "expires_s", (json_int_t)seconds, "expires",
                                        (json_int_t)time(NULL) + (json_int_t)seconds, "addresses",
                                        addrs, "running", (int)m->running, "port", m->port));
    }
    size_t i;
    const json_t *a;
    cli_note(h->c, "for %lld machine%s, within %s. On each of them:", (long long)uses,
             uses == 1 ? "" : "s", cli_duration((double)seconds, d));
    cli_note(h->c, "  shoal join TOKEN        (TOKEN is the line that begins with shoal1)");
    json_array_foreach(addrs, i, a)
    {
        cli_note(h->c, "%s %s", i ? "  or" : "it leads to", json_string_value(a));
    }
    if (!m->running) {
        cli_note(h->c,
                 "no node runs here now: the invite works only while `shoal up%s` does, on port "
                 "%d",
                 cli_home_flag(h), m->port);
    }
    json_decref(addrs);
    printf("%s\n", m->text);
    return cli_write(h->c, "", 0);
}

/* ---- those there are ---- */

static int list(struct cli_home *h, struct err *e)
{
    struct invite *v = NULL;
    size_t n, damaged;
    int r = invite_list(h->path, &v, &n, &damaged, e);
    if (r) {
        return cli_fail(h->c, e);
    }
    json_t *all = json_array();
    uint64_t now = (uint64_t)time(NULL);
    for (size_t i = 0; i < n; i++) {
        char id[B32_CHARS(INVITE_ID) + 1], d[CLI_NUM];
        b32_encode(v[i].id, INVITE_ID, id);
        id[10] = 0;
        bool over = v[i].expires < now;
        const char *state = v[i].used >= v[i].uses ? "used up" : over ? "expired" : "open";
        json_array_append_new(all, json_pack("{s:s, s:s, s:i, s:i, s:I}", "id", id, "state", state,
                                             "uses", (int)v[i].uses, "used", (int)v[i].used,
                                             "expires", (json_int_t)v[i].expires));
        if (!h->c->json) {
            printf("%s  %-7s  used %u of %u%s%s\n", id, state, (unsigned)v[i].used,
                   (unsigned)v[i].uses, over ? "" : ", ends in ",
                   over ? "" : cli_duration((double)(v[i].expires - now), d));
        }
    }
    free(v);
    if (damaged) {
        cli_note(h->c, "%zu files in %s/shoal/invites are damaged", damaged, h->path);
    }
    if (h->c->json) {
        return cli_json(h->c,
                        json_pack("{s:o, s:I}", "invites", all, "damaged", (json_int_t)damaged));
    }
    json_decref(all);
    return cli_write(h->c, "", 0);
}

static int revoke_one(struct cli_home *h, const char *id, struct err *e)
{
    if (invite_revoke(h->path, id, e)) {
        return cli_fail(h->c, e);
    }
    cli_home_look(h);
    if (h->c->json) {
        return cli_json(h->c, json_pack("{s:s}", "revoked", id));
    }
    printf("The invite %s is void.\n", id);
    return cli_write(h->c, "", 0);
}

static int run(struct cli *c, const void *opts, int argc, char **argv)
{
    const struct invite_opts *o = opts;
    struct cli_home h;
    struct err e = {0};
    struct made m = {.running = false};
    bool listing = argc == 1 && !strcmp(argv[0], "list");
    bool revoking = argc == 2 && !strcmp(argv[0], "revoke");
    if (argc && !listing && !revoking) {
        return cli_usage(c, "invite: say `invite`, `invite list` or `invite revoke ID`");
    }
    int status;
    if (cli_home_open(&h, c, &o->home, HOME_SHOAL, &e)) {
        status = cli_fail(c, &e);
    } else if (listing || revoking) {
        status = listing ? list(&h, &e) : revoke_one(&h, argv[1], &e);
    } else {
        status = make(&h, o, &m, &e) ? cli_fail(c, &e) : print(&h, o, &m);
        crypto_wipe(&m, sizeof m);
    }
    cli_home_close(&h);
    return status;
}

const struct command cmd_invite = {
    .name = "invite",
    .args = "[list | revoke ID]",
    .summary = "print a token with which another machine joins (on a keeper)",
    .details =
        "The token goes to standard output, alone on its line; whoever has it can join, so hand "
        "it\n"
        "over as you would a password. It holds this machine's addresses and a secret, and works\n"
        "while a node runs here (`shoal up`). `invite list` shows what was given out, `invite\n"
        "revoke` makes one void.",
    .examples = "  shoal invite\n  shoal invite --uses 3 --expires 1h\n"
                "  shoal invite --address shoal.example.net:4433\n",
    .groups = groups,
    .n_groups = sizeof groups / sizeof *groups,
    .max_args = 2,
    .size = sizeof(struct invite_opts),
    .run = run,
};
