#!/bin/bash
# Starts one launcher per host and waits for all. SIGTERM or Ctrl-C here stops the job: the ranks save their state, and
# the exit code is 75. If this script is killed, the job stops, too.
hosts=({{#hosts}} {{.}}{{/hosts}} )

# What runs on every host: $1 its rank, $2 the port.
# shellcheck disable=SC2329
node() {
  read -r LOCKSTEP_TOKEN || exit 3
  export LOCKSTEP_TOKEN
  {{^image}}
  cd {{workdir}} || exit 3
  {{/image}}
  {{>environment}}
  {{#setup}}
{{.:raw}}
  {{/setup}}
  # Node 0 hears of a stop from its standard input.
  [ "$1" -ne 0 ] || export LOCKSTEP_CONTROL=stdin
  exec {{#apptainer}}apptainer exec --nv{{#workdir}} --pwd {{workdir}}{{/workdir}}{{#mounts}} --bind {{bind}}{{/mounts}} {{image}} {{/apptainer}}{{lockstep}} {{subcommand:plain}} --name={{name}} \
    --nnodes={{nodes}} --node-rank="$1"{{#several_nodes}} --master-addr={{master}} --master-port="$2"{{/several_nodes}}{{#flags}} {{.}}{{/flags}} \
    {{#program}} {{.}}{{/program}}
}

quote() {
  printf "'%s'" "${1//\'/\'\\\'\'}"
}
start() {
  # A host that takes the connection and says nothing must not hold up the end of the job.
  # shellcheck disable=SC2029
  ssh -o BatchMode=yes -o ConnectTimeout=60 -o ServerAliveInterval=15 "${hosts[$1]}" "bash -c $(quote "$(declare -f node); node $1 $port")"
}

work=$(mktemp -d) || exit 3
trap 'rm -rf "$work"' EXIT
# Both ends are opened here: who opens one alone waits for the other, and this script may end before that.
# shellcheck disable=SC2094
mkfifo "$work/control" && exec 3<> "$work/control" 5< "$work/control" 4> "$work/control" || exit 3
exec 3>&4 4>&-
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
# Jobs may share a host: each has a port of its own.
port=$((20000 + 0x${token:0:8} % 9000))
printf '%s\n' "$token" >&3
# Node 0 reads it when it is there, or is gone: then nobody is left to be told.
trap 'stopped=1; printf "\017" >&3 2>/dev/null' TERM INT HUP  # SIGTERM is signal 15, octal 17
trap : PIPE
pids=()
start 0 <&5 3>&- 5<&- &
pids+=($!)
exec 5<&-
for ((rank = 1; rank < {{nodes}}; ++rank)); do
  start "$rank" <<< "$token" 3>&- &
  pids+=($!)
done
{{#time}}
# Before the limit, so that the ranks can save their state. It also ends when its input closes: with this script.
exec 4> >(exec 3>&-; read -r -t {{stop_after_seconds}}; [ $? -le 128 ] || kill -TERM $$)
{{/time}}
{{>wait}}
exit "$code"
