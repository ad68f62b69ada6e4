#!/bin/bash
# SPDX-License-Identifier: MIT
# t_lan_strangers.sh SHOAL JGET MODEL_FOLDER: who knocks at a running node without being a member, and what they
# get: nothing, and one counted line. Root; 77 = skipped.
set -u
shoal=$1 jget=$2 model=$3
cd "$(dirname "$0")" || exit 2
export LAN=lx$$ LAN_DIR=${TMPDIR:-/tmp}/lan.strangers.$$
. ./netns.sh
. ./check.sh
. ./up.sh
lan_need openssl curl
lan_trap
M=$model
A=10.77.0.1:$up_port

t 'three machines' lan_up 3
t 'avahi on 1 and 2' lan_mdns 1 2
t 'a shoal on 1' found 1
t 'up on 1' up 1
T=$(invite 1 --expires 1s)
t '2 joins' join 2 "$(invite 1)"
spent=$(node 1 invite list --json | "$jget" -s 'state=used up' 'invites.*' | "$jget" id)
t 'the invite that it used is revoked' node 1 invite revoke "$spent" --json >"$LAN_DIR/revoked"
t 'another shoal on 3' found 3
for k in {10..29}; do ip -n "$(lan_ns 3)" addr add "10.77.0.1$k/24" dev eth0; done # each stranger has its own
cert() { # NAME HOME: a certificate of its own making for the key of that node
    openssl req -x509 -new -key "$2/identity/node.key" -subj /CN=shoal -days 2 -out "$LAN_DIR/$1.crt" 2>/dev/null &&
        cp "$2/identity/node.key" "$LAN_DIR/$1.key"
}
t 'keys: a member' cert member "$(home 2)"
t 'keys: of the other shoal' cert other "$(home 3)"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$LAN_DIR/made.key" -subj /CN=me -days 2 \
    -out "$LAN_DIR/made.crt" 2>/dev/null

who=110
from() { echo "10.77.0.$who"; }
mkfifo "$LAN_DIR/nothing"
exec 9<>"$LAN_DIR/nothing" # an input that does not end
# tls KEY ARG...: openssl s_client from the next address until it is turned away, or gets something of the
# application, which is in $LAN_DIR/got
tls() {
    local key=$1
    shift
    who=$((who + 1))
    : >"$LAN_DIR/got"
    lan_bg 3 "$LAN_DIR/said" bash -c 'exec timeout 90 openssl s_client "$@" <&9 >"$0"' "$LAN_DIR/got" -connect "$A" \
        -bind "$(from):0" -quiet ${key:+-cert "$LAN_DIR/$key.crt" -key "$LAN_DIR/$key.key"} "$@"
    within 60 tls_over
    kill "$LAN_PID" 2>/dev/null
    wait "$LAN_PID" 2>/dev/null
}
tls_over() { [ -s "$LAN_DIR/got" ] || no lan_alive "$LAN_PID"; }
members() { status 1 members; }
refusals() { status 1 refused.strangers refused.not_tls refused.failed refused.over_limit refused.invites | awk '{ s += $1 } END { print s + 0 }'; }
before=0
counted() { # N [M]: N (to M) more than at the last look
    local was=$before
    within 60 more "$1" || true
    before=$(refusals)
    between $((before - was)) "$1" "${2:-$1}"
}
more() { [ $(($(refusals) - before)) -ge "$1" ]; }
lines() { logs 1 "$(from)([^0-9]|\$)"; }
# turned_away WORDS: the last stranger got nothing; the log has one line about it, with these words
turned_away() {
    [ ! -s "$LAN_DIR/got" ] || { echo "     got $(wc -c <"$LAN_DIR/got") bytes"; return 1; }
    within 60 said_line
    [ "$(lines)" = 1 ] && [ "$(logs 1 "$(from)[^0-9].*($1)")" = 1 ] || {
        grep "$(from)" "$LAN_DIR/up.1" | sed 's/^/     /' | head -n 5
        return 1
    }
}
said_line() { [ "$(lines)" -ge 1 ]; }

# No invite is open.
t 'no invite is open' within 60 eval '[ "$(status 1 invites_open)" = false ]'
t 'a member with openssl gets in: this test can tell' eval 'tls member -tls1_2; [ -s "$LAN_DIR/got" ]'
before=$(refusals)
tls '' -tls1_2
t 'openssl without a key' turned_away 'no (usable )?key'
t '... counted' counted 1
tls made -tls1_2
t 'openssl with a key of its own' turned_away 'not a member'
t '... counted' counted 1
tls other -tls1_2
t "another shoal's node key" turned_away 'not a member'
t '... counted' counted 1
tls member -tls1_1 -cipher DEFAULT@SECLEVEL=0
t 'TLS 1.1, with the key of a member' turned_away 'no TLS version'
t '... counted' counted 1
tls member -tls1_2 -cipher ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA
t 'a suite that is no AEAD, with the key of a member' turned_away 'no TLS version or cipher suite'
t '... counted' counted 1
who=$((who + 1))
lan_run 3 curl -s -m 60 --interface "$(from)" "http://$A/" >"$LAN_DIR/got" 2>/dev/null
t 'a plain HTTP client' turned_away 'plain HTTP'
t '... counted' counted 1
who=$((who + 1))
lan_run 3 curl -sk -m 60 --interface "$(from)" "https://$A/" >"$LAN_DIR/got" 2>/dev/null
t 'an HTTPS client' turned_away 'no (usable )?key|no TLS version|not a member'
t '... counted' counted 1
who=$((who + 1))
ip -n "$(lan_ns 3)" route add 10.77.0.1/32 dev eth0 src "$(from)"
lan_run 3 bash -c 'for p in $(seq 4424 4442); do (exec 3<>/dev/tcp/10.77.0.1/$p) 2>/dev/null && echo $p; done' \
    >"$LAN_DIR/open"
t 'a port scan finds the one port' test "$(cat "$LAN_DIR/open")" = "$up_port"
t '... counted' counted 1
lan_run 3 bash -c "for k in {1..60}; do (exec 3<>/dev/tcp/10.77.0.1/$up_port; head -c 300 /dev/urandom >&3
    timeout 1 cat <&3) 2>/dev/null; done" >"$LAN_DIR/got"
t 'sixty times garbage: nothing comes back' test ! -s "$LAN_DIR/got"
t '... counted' counted 60
t '... not in sixty lines' between "$(lines)" 1 20 # each text once a minute
ip -n "$(lan_ns 3)" route del 10.77.0.1/32 dev eth0 src "$(from)"

other_up() { # a node of the other shoal has this one named as its peer
    lan_bg 3 "$LAN_DIR/up.3" "$shoal" up --home "$(home 3)" --model "$M" --peer-listen "[::]:$up_port" \
        --no-bonjour --peer "$A" --json
    up_pid[3]=$LAN_PID
    within 60 up_ready 3
}
t "a node of the other shoal has this one as its peer" other_up
t '... is told why' within 60 grep -q 'does not know us' "$LAN_DIR/up.3"
t '... and here are few lines of it' between "$(logs 1 '10\.77\.0\.3[^0-9].*not a member')" 1 3
t '... it ends' down 3
counted 1 20 >/dev/null

# Invites. A spent one stays open for the node that spent it, so from here on strangers come further.
by() { # NAME TOKEN: a node with a new home tries to join from machine 3; what it was told is in $LAN_DIR/told
    lan_run 3 "$shoal" join --home "$LAN_DIR/home.$1" --json "$2" >"$LAN_DIR/told" 2>"$LAN_DIR/join.$1"
}
t 'an invite that is over, nobody is expected: refused' no by 4 "$T"
t '... in words' grep -q 'takes nobody in' "$LAN_DIR/told"
t '... counted' counted 1 3
T=$(invite 1)
E=$(invite 1 --expires 1s)
tls made -tls1_2
t 'openssl with a key of its own while an invite is open' turned_away 'came with no invite'
t '... counted' counted 1
t 'a new node joins' by 5 "$T"
t '... counted as nothing' counted 0 1
t 'the used invite once more: refused' no by 6 "$T"
t '... in words' grep -q 'used' "$LAN_DIR/told"
t '... counted' counted 1 2 # on a busy machine a second address is tried before the answer is there
t '... one line' between "$(logs 1 'not taken in')" 1 1
t 'an invite that is over: refused' no by 7 "$E"
t '... in words' grep -Eq 'is over|expired' "$LAN_DIR/told"
t '... counted' counted 1 2
t 'nobody else was taken in' test "$(members)" = 3
t 'a mistyped token is told at once' no by 8 "${T%??????}abcdef"
t '... and reaches nobody' counted 0
t "a node of the other shoal has this one as its peer" other_up
t '... is told why' within 60 grep -Eq 'makes a member|no member of this shoal|does not know us' "$LAN_DIR/up.3"
t '... it ends' down 3
counted 1 20 >/dev/null

# A member is removed while it is connected.
t 'up on 2' up 2
t 'members are connected' within 60 eval 'sees 1 2 && sees 2 1'
t 'it is removed' node 1 remove "${id[2]}" --json >"$LAN_DIR/removed"
t '... it is out' within 60 eval '[ "$(members)" = 2 ] && connected 1 0 && connected 2 0'
t '... and reads why' within 60 grep -q 'removed' "$LAN_DIR/up.2"
t '... the keeper, too' grep -Eq 'no member any more|was removed' "$LAN_DIR/up.1"
t '... in its status' within 60 eval '[ "$(status 2 removed)" = true ]'
dead 2
t '... after a new start' up 2 --peer "$A"
sleep 3
t '... it stays out' eval 'connected 1 0 && connected 2 0'
t '... says so again' grep -q 'removed' "$LAN_DIR/up.2"
t '... and does not knock all the time' between "$(logs 1 'refused .*was removed')" 1 5
t 'the node is well' eval '[ "$(members)" = 2 ] && down 1 && down 2'
t 'few lines in all' between "$(wc -l <"$LAN_DIR/up.1")" 10 120
[ $lan_failed = 0 ] || show_logs
lan_result 'strangers'
