# SPDX-License-Identifier: MIT
# up.sh: nodes of shoal on the machines of a LAN; to be sourced after netns.sh and check.sh. $shoal and $jget are
# the programs, $M is the model (a folder or URL) that nodes work with.
#
#   home I                   the data folder of the node on machine I
#   node I COMMAND ARG...    shoal COMMAND --home ... on machine I
#   up I ARG...              starts shoal up there and waits until it is ready; its pid is ${up_pid[I]}, what it
#                            writes (standard output and error) in $LAN_DIR/up.I. up_begin I ARG..., up_done I: in two steps
#   down I                   ends it by SIGTERM; fails unless it ends with status 0
#   dead I                   SIGKILL
#   found I                  makes a shoal there. invite I ARG... prints a token; join I TOKEN
#   forget I                 the addresses that it remembers, also from joining
#   status I PATH...         values of shoal status --json (jget.c)
#   peer I J FIELD           of what I's status says of the node on J
#   connected I N            status of I counts N peers as connected
#   answers I FILE ARG...    runs the prompt $P there, the JSON result in FILE
#   logs I PATTERN           how many lines of its present log match
#   sent_to I J...           bytes that the machines J sent to I since lan_zero
#   show_logs                everything, for a test that failed
declare -A up_pid id
up_port=4433
home() { echo "$LAN_DIR/home.$1"; }
node() {
    local i=$1 c=$2
    shift 2
    lan_run "$i" "$shoal" "$c" --home "$(home "$i")" "$@"
}

up() { up_begin "$@" && up_done "$1"; }
up_begin() {
    local i=$1 log=$LAN_DIR/up.$1
    shift
    [ ! -e "$log" ] || mv "$log" "$log.$(date +%s%N)"
    lan_bg "$i" "$log" "$shoal" up --home "$(home "$i")" --model "$M" --peer-listen "[::]:$up_port" --json "$@"
    up_pid[$i]=$LAN_PID
}
up_done() { within 60 up_ready "$1" && grep -Eq '"event": *"ready"' "$LAN_DIR/up.$1"; }
up_ready() { # or over
    grep -Eqs '"event": *"ready"' "$LAN_DIR/up.$1" || no lan_alive "${up_pid[$1]}"
}

down() {
    kill -TERM "${up_pid[$1]}" || return 1
    within 60 no lan_alive "${up_pid[$1]}" && wait "${up_pid[$1]}"
}
dead() {
    kill -KILL "${up_pid[$1]}"
    wait "${up_pid[$1]}" 2>/dev/null
    true
}

found() { id[$1]=$(node "$1" init --json | "$jget" short) && [ -n "${id[$1]}" ]; }
invite() {
    local i=$1
    shift
    node "$i" invite --json "$@" | "$jget" token
}
join() {
    local i=$1
    shift
    id[$i]=$(node "$i" join --json "$@" 2>"$LAN_DIR/join.$i" | "$jget" short) && [ -n "${id[$i]}" ]
}

forget() { rm -f "$(home "$1")/addresses" "$(home "$1")/peers"; }

status() {
    local i=$1
    shift
    node "$i" status --json 2>/dev/null | "$jget" "$@" 2>/dev/null
}
peer() { status "$1" -s "short=${id[$2]}" 'peers.*' | "$jget" "$3" 2>/dev/null; }
connected() { [ "$(status "$1" connected)" = "$2" ]; }
sees() { [ "$(peer "$1" "$2" state)" = connected ]; }
answers() {
    local i=$1 out=$2
    shift 2
    node "$i" run --model "$M" --prompt "$P" --max-new 24 --ignore-eos --json --quiet "$@" >"$out" 2>"$out.err" || {
        cat "$out" "$out.err"
        false
    }
}
of() { "$jget" "$2" <"$1"; } # FILE PATH
same() { [ -n "$(of "$1" receipt)" ] && [ "$(of "$1" receipt)" = "$(of "$2" receipt)" ]; }
sent_to() {
    local to=$1 from s=0
    shift
    for from; do s=$((s + $(lan_pair_bytes "$from" "$to"))); done
    echo $s
}
logs() { grep -cE "$2" "$LAN_DIR/up.$1"; }

show_logs() {
    local f
    for f in "$LAN_DIR"/up.* "$LAN_DIR"/join.*; do
        [ -e "$f" ] || continue
        echo "== ${f##*/}"
        tail -n 40 "$f"
    done
}
