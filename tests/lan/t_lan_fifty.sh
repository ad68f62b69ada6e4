#!/bin/bash
# SPDX-License-Identifier: MIT
# t_lan_fifty.sh SHOAL JGET SHAKE MODEL_FOLDER [MEMBERS]: that many nodes that have met come up at once; what it costs
# beside the bare handshakes, how much memory a member takes, what a restart makes the others send. Root;
# 77 = skipped. MEMBERS 50 by default. It asserts states and, with 50, bounds of memory and of what a restart costs;
# processor time is only printed.
set -u
shoal=$1 jget=$2 shake=$3 model=$4 N=${5:-50}
MEMBER_KB=400    # most memory that a connected member takes (kB), see README.md
RESTART_KB=64    # most that a member sends and receives more because another one restarts
cd "$(dirname "$0")" || exit 2
export LAN=lf$$ LAN_DIR=${TMPDIR:-/tmp}/lan.fifty.$$ LAN_BRIDGE=1
. ./netns.sh
. ./check.sh
. ./up.sh
lan_need
ip netns add "${LAN}x" && ip -n "${LAN}x" link add lan0 type bridge 2>/dev/null
bridge=$?
ip netns del "${LAN}x"
[ $bridge = 0 ] || lan_skip "this kernel has no bridges"
lan_trap
M=$model
pairs=$((N * (N - 1) / 2))

ticks() { awk '{ print $14 + $15 }' "/proc/${up_pid[$1]}/stat"; } # of user and system time
rss() { awk '/^VmRSS/ { print $2 }' "/proc/${up_pid[$1]}/status"; }
wire() { ip netns exec "$LAN$1" cat /sys/class/net/eth0/statistics/{rx,tx}_bytes | awk '{ s += $1 } END { print s }'; }
opens() { # connections that a machine has begun and that came about
    ip netns exec "$LAN$1" awk '/^Tcp: [0-9]/ { print $6 - $8 }' /proc/net/snmp
}
sum() { # WORD FIRST LAST
    local i s=0
    for ((i = $2; i <= $3; i++)); do s=$((s + $($1 "$i"))); done
    echo $s
}
now() { date +%s.%N; }
calc() { awk "BEGIN { printf \"%.$1f\", $2 }"; }
# Node I is connected to all others and knows what each of them holds.
asked=0
knows_all() {
    asked=$((asked + 1))
    node "$1" status --json >"$LAN_DIR/status" 2>/dev/null || return 1
    [ "$("$jget" connected <"$LAN_DIR/status")" = $((N - 1)) ] &&
        [ "$("$jget" 'peers.*.objects' <"$LAN_DIR/status" | grep -cx "$held")" = $((N - 1)) ]
}
all_know_all() {
    local i
    for ((i = 1; i <= N; i++)); do within 120 knows_all $i || return 1; done
}

# Namespaces share one kernel's table of neighbours, which has room for some 1000: where 50 machines know all others it
# would overflow. Entries that stay do not count.
neighbours() {
    local i j batch=$LAN_DIR/neighbours
    for ((i = 1; i <= N; i++)); do
        echo "neigh replace 10.77.0.$i lladdr $(ip netns exec "$LAN$i" cat /sys/class/net/eth0/address) dev eth0 nud permanent"
    done >"$batch"
    for ((i = 1; i <= N; i++)); do
        grep -v " 10.77.0.$i " "$batch" | ip -n "$LAN$i" -batch - || return 1
    done
}
t "$N machines" lan_up "$N"
t 'they know each other by heart' neighbours
t 'a shoal on 1' found 1
warm() { node 1 run --model "$M" --prompt 'The sea' --max-new 2 --json --quiet >"$LAN_DIR/run"; }
t '1 brings some of the model to its disk' warm
t 'up on 1' up 1 --no-bonjour
T=$(invite 1 --uses $((N - 1)))
joined=1
for ((i = 2; i <= N; i++)); do
    join $i "$T" && joined=$((joined + 1))
done
t 'all have joined' [ $joined = "$N" ]
t 'it stops' down 1

# Everybody holds the same; what is written to is everybody's own.
for ((i = 2; i <= N; i++)); do
    cp -al "$(home 1)/cache" "$(home $i)/"
    find "$(home $i)/cache" -type f ! -path '*/experts/*' ! -path '*/spine/*' -exec cp -p {} {}.own \; -exec mv -f {}.own {} \;
done
t 'one alone' up 1 --no-bonjour
sleep 2
alone=$(ticks 1) alone_kb=$(rss 1)
held=$(status 1 objects)
t 'it holds something' [ "$held" -gt 0 ]
t 'it stops' down 1

shakes=$((pairs < 200 ? pairs : 200))
read -r before _ <<<"$("$shake" $shakes)"
for ((i = 1; i <= N; i++)); do
    # each names those before it; where the others are is remembered then, with their ids
    for ((j = 1; j < i; j++)); do echo "10.77.0.$j:$up_port"; done >"$(home $i)/peers"
    rm -f "$(home $i)/addresses"
done
all_up() {
    local i ready=0
    for ((i = 1; i <= N; i++)); do up_begin $i --no-bonjour --metered yes; done
    for ((i = 1; i <= N; i++)); do up_done $i && ready=$((ready + 1)); done
    [ $ready = "$N" ] && all_know_all
}
all_down() {
    local i over=0
    for ((i = 1; i <= N; i++)); do kill -TERM "${up_pid[$i]}"; done
    for ((i = 1; i <= N; i++)); do
        within 60 no lan_alive "${up_pid[$i]}" && wait "${up_pid[$i]}" && over=$((over + 1))
    done
    [ $over = "$N" ]
}
t 'all find each other' all_up
t 'all stop' all_down
for ((i = 1; i <= N; i++)); do : >"$(home $i)/peers"; done
asked=0 opened=$(sum opens 1 "$N") begun=$(now)
t 'all come up together, are connected and know what each holds' all_up
ended=$(now)
used=$(sum ticks 1 "$N") opened=$(($(sum opens 1 "$N") - opened))
asks=$asked
# what they use at rest, and for being asked as often as above, is no part of it
r0=$used t0=$(now)
sleep 3
r1=$(sum ticks 1 "$N") t1=$(now)
for ((i = 1; i <= N; i++)); do knows_all $i; done
r2=$(sum ticks 1 "$N") t2=$(now)
read -r after _ <<<"$("$shake" $shakes)"
hz=$(getconf CLK_TCK)
bare=$(calc 3 "($before + $after) / 2 * $pairs / 1000")
rest=$(calc 6 "($r1 - $r0) / ($t1 - $t0)")
ask=$(calc 6 "($r2 - $r1 - $rest * ($t2 - $t1)) / $N")
cost=$(calc 3 "($used - $N * $alone - $rest * ($ended - $begun) - $ask * $asks) / $hz")
echo "     of $used ticks: $((N * alone)) to start alone, $(calc 0 "$rest * ($ended - $begun)") at rest," \
    "$(calc 0 "$ask * $asks") for $asks questions; $opened connections for $pairs pairs"
echo "     $pairs handshakes alone: $bare s of processor time; $N nodes, beyond $N times one alone: $cost s," \
    "ratio $(calc 2 "$cost / $bare"); $(calc 1 "$ended - $begun") s from the first start to the last look"

kb=$(sum rss 1 "$N")
member_kb=$(calc 0 "($kb / $N - $alone_kb) / ($N - 1)")
echo "     memory: $alone_kb kB alone, $((kb / N)) kB on average, $member_kb kB for each member"
[ "$N" -lt 50 ] || t "a member takes $MEMBER_KB kB at most" between "$member_kb" -100000 $MEMBER_KB

last=$N
sleep 2
w0=$(sum wire 1 $((N - 1))) t0=$(now)
sleep 3
w1=$(sum wire 1 $((N - 1))) t1=$(now)
idle=$(calc 0 "($w1 - $w0) / ($t1 - $t0)")
t 'one stops' down "$last"
t 'all others see it' within 60 connected 1 $((N - 2))
t 'it starts again' up "$last" --no-bonjour --metered yes
t 'all are connected again' all_know_all
sleep 2
w2=$(sum wire 1 $((N - 1))) t2=$(now)
more=$(calc 1 "($w2 - $w1 - $idle * ($t2 - $t1)) / ($N - 1) / 1000")
echo "     at rest $(calc 2 "$idle / ($N - 1) / 1000") kB a second for each; a restart: $more kB more for each of the others"
[ "$N" -lt 50 ] || t "a restart costs each of the others $RESTART_KB kB at most" between "$more" -100000 $RESTART_KB
t 'all stop' all_down
[ $lan_failed = 0 ] || show_logs
lan_result "$N members"
