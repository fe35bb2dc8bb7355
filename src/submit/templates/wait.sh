# The exit code of the job is the first that is not 0.
code=0
for pid in "${pids[@]}"; do
  # A trap ends "wait" with its signal's code, also when the launcher has just ended: its own code comes from another "wait".
  stopped=1
  while [ "$stopped" -eq 1 ]; do
    stopped=0
    wait "$pid"
    one=$?
  done
  [ "$code" -ne 0 ] || code=$one
done
{{#time}}
exec 4>&-
{{/time}}
