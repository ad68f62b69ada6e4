/* SPDX-License-Identifier: MIT
 * fuzz_api.c: any bytes as the body of a request, the first of them choosing the endpoint: fields,
 * Anthropic's and OpenAI's other form told as chat completions, prompt, and the form of the answer.
 * What is refused says why; what is taken can be freed. */
#include "chat_tok.h"
#include "node/api/messages.h"
#include "node/api/responses.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

static void chat(struct oai *o, const char *text, size_t n, const struct pyjson *root)
{
    struct gen_ask a = {.n = 1};
    struct err e = {0};
    if (oai_chat_ask(o, text, n, root, &a, &e)) {
        require(e.code && e.msg[0] && oai_status(&e) >= 400);
    } else {
        require(a.prompt.n > 0 && a.chat && a.request_n == n);
        for (size_t i = 0; i < a.n_bounds; i++) {
            require(a.bounds[i] <= a.prompt.n && (!i || a.bounds[i] > a.bounds[i - 1]));
        }
    }
    gen_ask_free(&a);
}

static void fields(struct oai *o, const struct pyjson *root)
{
    struct gen_ask a = {.n = 1};
    struct oai_stream s;
    struct err e = {0};
    int r = oai_sampling(o, root, &a, &e);
    require(!r || (e.code == r && strstr(e.msg, ": ")));
    if (!r) {
        require(a.n >= 1 && a.n <= GEN_CHOICES_MAX && a.n_stops <= STOPS_MAX);
        require(a.sampling.base.top_p > 0 && a.sampling.base.top_p <= 1);
    }
    gen_ask_free(&a);
    memset(&e, 0, sizeof e);
    r = oai_stream_opts(root, &s, &e);
    require(!r || (e.code == r && e.msg[0]));
    memset(&e, 0, sizeof e);
    r = oai_check_model(o, root, &e);
    require(!r || (e.code == r && e.msg[0]));
    memset(&e, 0, sizeof e);
    r = oai_known(root, oai_common, NULL, &e);
    require(!r || (e.code == r && e.msg[0]));
}

/* A form told as a chat completion must be JSON that the chat endpoint can judge. */
static void told(struct oai *o, const struct pyjson *root,
                 int (*f)(const struct pyjson *root, struct buf *b, struct err *e))
{
    struct buf b;
    struct err e = {0};
    struct pyjson_doc *d;
    buf_init(&b, (size_t)16 << 20);
    int r = f(root, &b, &e);
    require(!r || (e.code == r && e.msg[0]));
    if (!r) {
        require(!pyjson_parse(b.p, b.n, false, &d, &e));
        require(pyjson_root(d)->type == PYJSON_OBJECT);
        chat(o, b.p, b.n, pyjson_root(d));
        pyjson_free(d);
    }
    buf_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct oai o;
    struct pyjson_doc *d;
    struct err e = {0};
    if (!o.m.tok) {
        o.m.tok = chat_tok();
        o.m.id = "k3";
    }
    if (size < 2) {
        return 0;
    }
    const char *text = (const char *)data + 1;
    if (pyjson_parse(text, size - 1, false, &d, &e)) {
        return 0;
    }
    const struct pyjson *root = pyjson_root(d);
    if (root->type == PYJSON_OBJECT) {
        fields(&o, root);
        switch (data[0] % 3) {
        case 0:
            chat(&o, text, size - 1, root);
            break;
        case 1:
            told(&o, root, messages_as_chat);
            break;
        default:
            told(&o, root, responses_as_chat);
        }
    }
    pyjson_free(d);
    return 0;
}
