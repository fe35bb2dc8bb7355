#!/bin/bash
# The start script of a KubeBrain job of {{nodes}} node(s): the platform runs it once on every node, and its variables
# (NODE_RANK, NODE_COUNT, MASTER_ADDR, or WORLD_SIZE and RANK counting nodes) tell the launcher where it is.
{{#native}}
{{.:raw}}
{{/native}}
{{#workdir}}
cd {{workdir}} || exit 3
{{/workdir}}
{{>environment}}
{{#setup}}
{{.:raw}}
{{/setup}}
exec {{lockstep}} {{subcommand:plain}} --nnodes={{nodes}} --name={{name}}{{#flags}} {{.}}{{/flags}} \
  {{#program}} {{.}}{{/program}}
