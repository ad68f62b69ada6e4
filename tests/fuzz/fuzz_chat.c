/* SPDX-License-Identifier: MIT
 * fuzz_chat.c: any bytes as a chat request. A prompt's segments cover its text, only structure is
 * trusted, and the ids hold exactly the structure that the segments say; an error names a field. */
#include "chat_tok.h"
#include "node/text/chat.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok) {
        __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tok *tok;
    struct chat_prompt p;
    struct tok_ids ids = {0};
    struct err e = {0};
    tok = tok ? tok : chat_tok();
    if (chat_render((const char *)data, size, CHAT_THINK_DEFAULT, &p, &e)) {
        require(e.code && strstr(e.msg, ": ") && !p.text && !p.segs);
        return 0;
    }
    size_t at = 0, trusted = 0, specials = 0;
    for (size_t i = 0; i < p.nsegs; i++) {
        require(p.segs[i].off == at && p.segs[i].n > 0);
        at += p.segs[i].n;
        trusted += p.segs[i].trusted;
    }
    require(at == p.text_n && p.text[at] == 0);
    require(!chat_prompt_ids(&p, tok, &ids, &e));
    for (size_t i = 0; i < ids.n; i++) {
        specials += tok_is_special(tok, ids.v[i]);
    }
    require(specials == trusted);
    require(ids.n >= trusted && p.think != CHAT_THINK_DEFAULT);
    tok_ids_free(&ids);
    chat_prompt_free(&p);
    return 0;
}
