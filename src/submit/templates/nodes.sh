# What runs on every node: $1 its rank, $2 the host of node 0, $3 the port, $4 the file of the token.
# shellcheck disable=SC2329
node() {
  {{^image}}
  cd {{workdir}} || exit 3
  {{/image}}
  {{>environment}}
  {{#setup}}
{{.:raw}}
  {{/setup}}
  exec {{#apptainer}}apptainer exec --nv{{#workdir}} --pwd {{workdir}}{{/workdir}}{{#mounts}} --bind {{bind}}{{/mounts}} {{image}} {{/apptainer}}{{lockstep}} {{subcommand:plain}} --name={{name}}{{#array}}-"$5"{{/array}} \
    --nnodes={{nodes}} --node-rank="$1"{{#several_nodes}} --master-addr="$2" --master-port="$3"{{/several_nodes}} --token-file="$4"{{#flags}} {{.}}{{/flags}} \
    {{#program}} {{.}}{{/program}}
}

# In a folder that all nodes see and only its owner reads; the token is in no command line.
work=$(mktemp -d "$HOME/.lockstep-job-XXXXXX") || exit 3
trap 'rm -rf "$work"' EXIT
( umask 077; od -An -N16 -tx1 /dev/urandom | tr -d ' \n' > "$work/token" ) || exit 3
{ declare -f node; echo 'node "$@"'; } > "$work/node.sh" || exit 3

if [ "${#hosts[@]}" -ne {{nodes}} ]; then
  echo "expected {{nodes}} hosts, found ${#hosts[@]}: ${hosts[*]}" >&2
  exit 3
fi
pids=()
told=
# The launcher of node 0 runs here. It hears of a stop and tells the others. A stop may come before it is started.
# shellcheck disable=SC2329
stop() {
  stopped=1
  told+=" $1"
  [ "${#pids[@]}" -eq 0 ] || kill -TERM "${pids[0]}" 2>/dev/null
}
trap 'stop TERM' TERM
trap 'stop INT' INT
trap 'stop USR2' USR2
bash "$work/node.sh" 0 "${hosts[0]}" "$port" "$work/token" "$index" &
pids+=($!)
[ -z "$told" ] || kill -TERM "${pids[0]}" 2>/dev/null
for ((rank = 1; rank < {{nodes}}; ++rank)); do
  remote "${hosts[rank]}" bash "$work/node.sh" "$rank" "${hosts[0]}" "$port" "$work/token" "$index" &
  pids+=($!)
done
{{#time}}
# Before the limit, so that the ranks can save their state. It also ends when its input closes: with this script.
exec 4> >(read -r -t {{stop_after_seconds}}; [ $? -le 128 ] || kill -TERM "${pids[0]}" 2>/dev/null)
{{/time}}
{{>wait}}
